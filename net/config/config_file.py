"""Updates of the configuration file by an operator's changes.

Owns the replacement: the file is complete at any time, and the previous one stays as .bak (as in
RocketMQ). It must never decide about the contents. It runs on a disk thread.
"""

import errno
from collections.abc import Sequence

from turbopump.engine.disk.config_files import replace_file
from turbopump.engine.disk.files import Files
from turbopump.net.wire.java_properties import PropertiesError, Property, updated_properties


def save_changes(files: Files, path: str, changed: Sequence[Property]) -> None:
    """Put changed values into the file at `path`, which may be new, and store the previous file as
    `path.bak`; blocks until both are durable. Raises OSError, also for values that the format
    cannot hold.

    The other lines stay: they belong to the operator, or to another node with its keys in this
    file. RocketMQ writes all keys, including values that it detected on the machine.
    """
    before = files.read(path) if files.exists(path) else None
    values = {item.key: item.value for item in changed}
    try:
        text = updated_properties((before or b"").decode("utf-8", "replace"), values)
    except PropertiesError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    if before is not None:
        # A copy: a crash after a rename could leave no file of this name, and no node would start.
        replace_file(files, f"{path}.bak", before)
    replace_file(files, path, text.encode())

"""The configuration file, kept up with the changes of an operator.

Owns how it is replaced: there is always a whole one, and the one before as .bak (as in RocketMQ).
It must never decide what is in it. Called by the nodes, on a disk thread.
"""

import errno
from collections.abc import Sequence

from turbopump.engine.disk.config_files import replace_file
from turbopump.engine.disk.files import Files
from turbopump.net.wire.java_properties import PropertiesError, Property, updated_properties


def write_back(files: Files, path: str, changed: Sequence[Property]) -> None:
    """Put changed values into a file, which may be a new one; the other lines stay: they are the
    operator's, or of another node that has its keys there. Raises OSError.

    RocketMQ writes all keys, and what it had found out about the machine with them.
    """
    before = files.read(path) if files.exists(path) else None
    values = {item.key: item.value for item in changed}
    try:
        text = updated_properties((before or b"").decode("utf-8", "replace"), values)
    except PropertiesError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    if before is not None:
        # A copy: were it renamed, a crash could leave no file of its name, and no node starts then.
        replace_file(files, f"{path}.bak", before)
    replace_file(files, path, text.encode())

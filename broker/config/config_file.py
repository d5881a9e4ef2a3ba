"""The configuration file, kept up with the changes of an operator.

Owns how it is replaced: there is always a whole one, and the one before as .bak (as in RocketMQ).
It must never decide what is in it. Called by node.py, on a disk thread.
"""

import errno
from collections.abc import Sequence

from turbopump.engine.disk import replacing
from turbopump.engine.disk.files import Files
from turbopump.net.wire.java_properties import PropertiesError, Property, updated_properties


def write_back(files: Files, path: str, changed: Sequence[Property]) -> None:
    """Put changed values into a file, which may be a new one; the other lines stay. Raises OSError.

    RocketMQ writes all keys, and what it had found out about the machine with them.
    """
    before = files.read(path) if files.exists(path) else b""
    values = {item.key: item.value for item in changed}
    try:
        text = updated_properties(before.decode("utf-8", "replace"), values)
    except PropertiesError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    replacing.write_beside(files, path, text.encode())
    if files.exists(path):
        replacing.set_aside(files, path, f"{path}.bak")
    replacing.take(files, path)
    replacing.sync_names(files, path)

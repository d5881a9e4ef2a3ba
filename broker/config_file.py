"""The configuration file, written back after a change by an operator.

Owns how it is replaced: there is always a whole one, and the one before as .bak (as in RocketMQ).
It must never decide what is in it. Called by node.py.
"""

import os

from turbopump.broker.config import BrokerConfig
from turbopump.engine.files import Files
from turbopump.net.wire.java_properties import format_properties


def write_back(files: Files, config: BrokerConfig) -> None:
    """Write the configuration to the file it came from, if it came from one. Raises OSError."""
    path = config.path
    if not path:
        return
    text = format_properties({**config.values(), **config.tls_properties})
    files.write(f"{path}.tmp", text.encode())
    files.sync(f"{path}.tmp")
    if files.exists(path):
        files.rename(path, f"{path}.bak")
    files.rename(f"{path}.tmp", path)
    files.sync_folder(os.path.dirname(path) or ".")

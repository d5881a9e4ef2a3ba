"""TURBOPUMP_TEST_IO_THREADS=4 gives each broker and proxy of a test run four I/O threads.

Without the key `ioThreads` a node starts half as many threads as there are processors. With the
variable this process and its children find twice as many processors as threads are asked for. It
must never be part of the product.
"""

import os
from pathlib import Path
from typing import Final

from tests.io_threads import sitecustomize

FOLDER: Final = str(Path(__file__).parent)
"""Folder whose sitecustomize.py each Python imports at its start, if PYTHONPATH has the folder."""


def switch_on() -> None:
    """Apply the switch to this process and to its later children; no-op without the variable, and
    if it was applied. Raises ValueError for a value that is no number of threads from 1 to 8."""
    if not os.environ.get(sitecustomize.VARIABLE):
        return
    sitecustomize.apply()
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    if FOLDER not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER, *paths])

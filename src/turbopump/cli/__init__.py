"""The command line: `turbopump` and `python -m turbopump`.

Owns the entry point only. It must never import a node, a client or rich at import time: every
command starts in a fraction of a second because it imports its modules when it runs.
"""

import os
import sys

INTERRUPTED = 130
"""The exit code that shells report for a process ended by SIGINT: 128 plus the signal's number."""


def main() -> None:
    """Run the command of this process's arguments and end the process with its exit code."""
    _open_standard_streams()
    try:
        from turbopump.cli.app import run

        run()
    except KeyboardInterrupt:  # before the command installed its signal handlers
        raise SystemExit(INTERRUPTED) from None


def _open_standard_streams() -> None:
    """Open the descriptors 0, 1 and 2 if the process was started without them (`>&-`).

    Otherwise the first socket gets such a number, and libuv aborts the process when it closes it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is `number`
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))

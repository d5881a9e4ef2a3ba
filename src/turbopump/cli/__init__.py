"""The command line: `turbopump` and `python -m turbopump`.

Owns nothing but the way in. It must never import a node, a client or rich at import time: every
command starts in a fraction of a second because it imports what it needs when it runs.
"""

import os
import sys

INTERRUPTED = 130
"""What shells make of SIGINT: 128 and its number."""


def main() -> None:
    """Run the command of this process's arguments; ends the process with its exit code."""
    _open_standard_streams()
    try:
        from turbopump.cli.app import run

        run()
    except KeyboardInterrupt:  # before the command took the signals over
        raise SystemExit(INTERRUPTED) from None


def _open_standard_streams() -> None:
    """Let 0, 1 and 2 be open: started without them (`>&-`), the first socket would get such a
    number, and libuv aborts the process where it is to close one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))

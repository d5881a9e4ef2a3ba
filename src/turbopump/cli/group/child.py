"""A node that ends with the process that started it, even after a `kill -9` of that process.

    python -m turbopump.cli.group.child PARENT COMMAND...

Owns the link to the parent only: the kernel sends SIGTERM when the parent ends, and the node stops
in order.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Operation of prctl that sets the signal sent at the parent's end."""


def main() -> None:
    """Link this process to its parent, whose pid is the first argument, and run the command of the
    other arguments. Raises SystemExit."""
    parent = int(sys.argv.pop(1))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM):
        raise SystemExit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # the parent ended before prctl was called
        raise SystemExit(f"process {parent} has ended")
    from turbopump.cli import main as run

    run()


if __name__ == "__main__":
    main()

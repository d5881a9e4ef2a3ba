"""A node that ends with the process that started it, however that ends.

    python -m turbopump.cli.group.child PARENT COMMAND...

Owns nothing but the tie. The kernel sends SIGTERM when the parent is gone, `kill -9` included, and
the node stops as if asked to. Started by processes.py.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the command of this process's other arguments."""
    parent = int(sys.argv.pop(1))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM):
        raise SystemExit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it was gone before it was asked for
        raise SystemExit(f"process {parent} has ended")
    from turbopump.cli import main as run

    run()


if __name__ == "__main__":
    main()

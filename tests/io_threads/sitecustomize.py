"""Each Python process of a test run with I/O threads imports this at its start.

It decides how many processors the process finds, and must never import more than os: it runs before
any program.
"""

import os

VARIABLE = "TURBOPUMP_TEST_IO_THREADS"
"""Environment variable: the number of I/O threads of a node, 1 to 8."""


def apply() -> None:
    """Let `os.sched_getaffinity` return twice as many processors as VARIABLE has threads, 3 at
    least. No-op without the variable. Raises ValueError."""
    value = os.environ.get(VARIABLE)
    if not value:
        return
    threads = int(value)
    if not 1 <= threads <= 8:
        raise ValueError(f"{VARIABLE} is a number from 1 to 8, not {value}")
    processors = frozenset(range(max(3, 2 * threads)))  # on one or two there are no threads
    os.sched_getaffinity = lambda _pid: set(processors)


apply()

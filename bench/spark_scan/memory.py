"""Resources of Spark's processes: peak memory, polled while they work, and CPU time."""

import os
import threading
from pathlib import Path

LOOK_S = 0.05
WORKER = b"pyspark"
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Polls the memory of a process's descendants every LOOK_S.

    Memory that only maps files is not counted: it belongs to the page cache.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_exit, daemon=True)
        self.worker_mb = 0.0
        """Peak of a single Python worker."""
        self.workers_mb = 0.0
        """Peak of all workers together."""
        self.jvm_mb = 0.0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _poll_until_exit(self) -> None:
        while not self._over.wait(LOOK_S):
            self._raise_peaks()

    def _raise_peaks(self) -> None:
        """Raise the peaks of memory (MB) of the JVM, of a worker, and of all workers together."""
        together = 0.0
        for pid in descendant_pids(self._root):
            proc = Path("/proc", str(pid))
            try:
                words = proc.joinpath("cmdline").read_bytes()
                own_mb = anonymous_mb(proc)
            except OSError:
                continue  # the process ended
            if is_java(words):
                self.jvm_mb = max(self.jvm_mb, own_mb)
            elif WORKER in words:
                self.worker_mb = max(self.worker_mb, own_mb)
                together += own_mb
        self.workers_mb = max(self.workers_mb, together)


def is_java(command_line: bytes) -> bool:
    """Whether the command line of a process is that of a JVM."""
    return b"java" in command_line.partition(b"\0")[0]


def cpu_s(root: int) -> tuple[float, float]:
    """Return (CPU time of the JVM, of Python workers).

    It includes ended processes for which a living descendant has waited.
    """
    jvm = workers = 0.0
    for pid in descendant_pids(root):
        proc = Path("/proc", str(pid))
        try:
            words = proc.joinpath("cmdline").read_bytes()
            fields = proc.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used = [int(field) / TICKS for field in fields[11:15]]
        if is_java(words):
            jvm += sum(used[:2])
        else:
            workers += sum(used)
    return jvm, workers


def anonymous_mb(proc: Path) -> float:
    """Return the anonymous memory, in MB, of the process whose folder in /proc is `proc`."""
    lines = proc.joinpath("status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(status.get("RssAnon", "0 kB").split()[0]) / 1024


def descendant_pids(root: int) -> list[int]:
    """Return the pids of all descendants of the process `root`."""
    found: list[int] = []
    at = [root]
    while at:
        pid = at.pop()
        for path in Path("/proc", str(pid), "task").glob("*/children"):
            try:
                children = [int(word) for word in path.read_text().split()]
            except OSError:
                continue
            found += children
            at += children
    return found

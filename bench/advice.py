"""Measures the effect of advice to the kernel and of reservations: `python bench/advice.py FOLDER`.

Each line is a way to treat a file before the work; the best of some rounds counts. The decisions
based on them are in docs/internals/store.md, the figures of one machine in docs/results.
"""

import mmap
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from turbopump.pyx.region import Region

MADV_POPULATE_READ = 22  # Linux 5.14; Python does not name it
SIZE = 256 << 20
INDEX_SIZE = 420 << 20
LOOK_UPS = 500
ROUNDS = 3
ADVICE = {
    "none": None,
    "SEQUENTIAL": mmap.MADV_SEQUENTIAL,
    "WILLNEED": mmap.MADV_WILLNEED,
    "RANDOM": mmap.MADV_RANDOM,
    "HUGEPAGE": mmap.MADV_HUGEPAGE,
    "POPULATE_READ": MADV_POPULATE_READ,
}
Work = Callable[[Region], object]


def evict_file(path: Path) -> None:
    """Remove a file from the page cache."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def time_with_advice(path: Path, advice: int | None, work: Work, cold: bool) -> float:
    """Map a file, give the advice (madvise; None: none) and run the work; return the milliseconds
    that both took. `cold`: the file is not in the page cache."""
    best = float("inf")
    for _ in range(ROUNDS):
        if cold:
            evict_file(path)
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        region = Region(memory)
        start = time.perf_counter()
        if advice is not None:
            region.advise(0, region.size, advice)
        work(region)
        best = min(best, time.perf_counter() - start)
        region.release()
        memory.close()
    return best * 1000


def read_region(region: Region) -> None:
    """Read every byte of a file once, as recovery's walk does."""
    piece = 1 << 20
    for at in range(0, region.size, piece):
        region.is_zero(at, piece)


def look_up(region: Region) -> None:
    """Read a slot and an entry of an index file at random places, as queries by key do."""
    chance = random.Random(1)
    for _ in range(LOOK_UPS):
        region.get_i32(chance.randrange(20 << 20))
        region.get_i32(chance.randrange(20 << 20, region.size - 4))


def measure_reading(folder: Path) -> None:
    """Measure the effect of advice on a scan of the log, and on look-ups in an index file."""
    for name, size, work in (("scan", SIZE, read_region), ("look-ups", INDEX_SIZE, look_up)):
        path = folder / name
        path.write_bytes(bytes(size))
        for cold in (False, True):
            for label, advice in ADVICE.items():
                took = time_with_advice(path, advice, work, cold)
                print(f"{name:9} {'cold' if cold else 'warm'}  {label:14} {took:9.1f} ms")
        path.unlink()


def measure_writing(folder: Path) -> None:
    """Measure ways to make the next log file, and the time to store into it afterwards."""
    path, data = folder / "next", b"x" * 65536
    for reserve in (False, True):
        for warm in (False, True):
            made, stored = float("inf"), float("inf")
            for _ in range(ROUNDS):
                start = time.process_time()
                with open(path, "w+b") as file:
                    file.truncate(SIZE)
                    if reserve:
                        os.posix_fallocate(file.fileno(), 0, SIZE)
                    memory = mmap.mmap(file.fileno(), SIZE)
                region = Region(memory)
                if warm:
                    region.warm(0, SIZE)
                middle = time.process_time()
                for at in range(0, SIZE, len(data)):
                    region.write(at, data)
                made = min(made, middle - start)
                stored = min(stored, time.process_time() - middle)
                region.release()
                memory.close()
                path.unlink()
            label = ("reserved" if reserve else "sparse") + (", warmed" if warm else "")
            print(f"new file  {label:18} made {made * 1000:7.1f} ms", end=", ")
            print(f"stored {stored * 1000:7.1f} ms")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    measure_writing(target)
    measure_reading(target)

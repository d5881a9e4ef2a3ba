"""The process that is killed: appends under SYNC_FLUSH and prints each acknowledged message.

Run as `python appender.py FOLDER SEED`. Each line: topic, queue id, queue offset, log offset, and
the number that begins the body.
"""

import queue
import random
import sys
import time
from collections.abc import Callable
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, FlushMode, NewMessage, PutStatus

IN_FLIGHT_MAX = 50
Posted = queue.SimpleQueue[Callable[[], None]]


def config(folder: str) -> StoreConfig:
    """Small files, so that kills hit rolls of log, queues and index."""
    return StoreConfig(
        folder,
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=200,
        flush_disk_type=FlushMode.SYNC_FLUSH,
        flush_consume_queue_thorough_interval_ms=50,
        flush_interval_consume_queue_ms=10,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def appended(put: Callable[[int], Appended], posted: Posted) -> Appended:
    """Append once the next log file is there, which a disk thread makes."""
    while (one := put(now_ms())).status is PutStatus.OS_PAGE_CACHE_BUSY:
        posted.get()()
    assert one.status is PutStatus.PUT_OK, one
    return one


def main() -> None:
    """Append until the process is killed."""
    rng = random.Random(sys.argv[2])
    posted: Posted = queue.SimpleQueue()
    disk = DiskThreads(posted.put)
    store = Store.open(RealFiles(), config(sys.argv[1]), disk, now_ms())
    print("open", flush=True)
    waiting = number = 0

    def acknowledged(status: PutStatus, name: tuple[str, int], first: int, one: Appended) -> None:
        nonlocal waiting
        waiting -= 1
        assert status is PutStatus.PUT_OK, status
        for count, log_offset in enumerate(one.log_offsets):
            print(name[0], name[1], one.queue_offset + count, log_offset, first + count)
        sys.stdout.flush()

    while True:
        name = (rng.choice("AB"), rng.randrange(3))
        if rng.random() < 0.2:
            bodies = [b"%d " % (number + n) for n in range(rng.randrange(1, 6))]
            element = b"".join(
                (22 + len(body)).to_bytes(4, "big")
                + bytes(12)
                + len(body).to_bytes(4, "big")
                + body
                + bytes(2)
                for body in bodies
            )
            one = appended(partial(store.append_batch, NewMessage(*name, element)), posted)
        else:
            bodies = [b"%d " % number + bytes(rng.choice((1, 100, 3000)))]
            text = f"KEYS\x01k{number % 100}\x02".encode()
            one = appended(partial(store.append, NewMessage(*name, bodies[0], text)), posted)
        first, number = number, number + len(bodies)
        waiting += 1
        store.when_safe(one).then(
            lambda status, name=name, first=first, one=one: acknowledged(status, name, first, one)
        )
        store.tick(now_ms())
        while waiting >= IN_FLIGHT_MAX or not posted.empty():
            posted.get()()


if __name__ == "__main__":
    main()

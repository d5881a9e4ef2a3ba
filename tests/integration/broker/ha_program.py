"""A store that replicates, as a process: it goes by its group file until SIGTERM.

    ha_program.py FOLDER ID PORT GROUP_FILE

While it is the master it appends messages without end, each named by epoch and number, and prints
the name of each that every member of the set has.
"""

import asyncio
import itertools
import signal
import sys
import time
from functools import partial

import uvloop

from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.service import HaService
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, NewMessage, PutStatus

IN_FLIGHT = 64
FILE_SIZE = 1 << 20


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def main(folder: str, number: int, port: int, group_file: str) -> None:
    loop = asyncio.get_running_loop()
    disk = DiskThreads(lambda report: loop.call_soon_threadsafe(report))
    config = StoreConfig(
        root=folder,
        mapped_file_size_commit_log=FILE_SIZE,
        mapped_file_size_consume_queue=20 * 5000,
        max_hash_slot_num=1000,
        max_index_num=10_000,
        flush_disk_type=FlushMode.SYNC_FLUSH,
    )

    def steady_ms() -> int:
        return round(loop.time() * 1000)

    store = Store.open(RealFiles(), config, disk, wall_ms(), steady_ms=steady_ms())
    options = HaOptions(
        own_id=number,
        ha_group_file=group_file,
        bind_address="127.0.0.1",
        ha_listen_port=port,
        all_ack_in_sync_state_set=True,
        sync_flush=True,
    )
    log = store.as_replicated(wall_ms())
    service = HaService(options, log, RealFiles(), disk, wall_ms, steady_ms)
    await service.start()
    print("serves", flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    in_flight = 0

    def answered(name: str, status: PutStatus) -> None:
        nonlocal in_flight
        in_flight -= 1
        if status is PutStatus.PUT_OK:
            print(name, flush=True)

    for count in itertools.count():
        if stopped.is_set():
            break
        if count % 20 == 0:
            store.tick(wall_ms(), steady_ms())
            service.tick()
        while service.term is not None and in_flight < IN_FLIGHT:
            need = service.term.copies_needed()
            name = f"{service.epoch}-{store.max_log_offset}"
            appended = store.append(NewMessage("T", 0, name.encode() * 20), wall_ms())
            if need is None or appended.status is not PutStatus.PUT_OK:
                break
            in_flight += 1
            store.when_safe(appended, need).then(partial(answered, name))
            service.on_log_grown()
        await asyncio.sleep(0.001)
    await service.stop()
    store.close(wall_ms())
    disk.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))

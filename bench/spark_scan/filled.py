"""The store to scan: made by our load generator with our broker, once per folder.

The counts of generator and broker are stored beside it, so that a run can continue later.
"""

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.versus.servers import GET_BROKER_RUNTIME_INFO
from bench.versus.workloads import PROGRAM
from interop.support import groups
from interop.support.groups import Group, Ports

COUNTS = "counts.json"
SERVER, STORE = "server", "store"
CONNECTIONS, BATCH, QUEUES = 16, 32, 8
TAGS = 4
OVERHEAD_BYTES = 230  # of a record, around the body: to estimate the number of records
GET_MAX_OFFSET = 30


@dataclass(frozen=True)
class Counts:
    """Counts of the stored messages and bytes, by the load generator and by the broker."""

    sent: int
    """Messages whose acknowledgement the generator received."""
    body_bytes: int
    put: int
    """Messages that the broker counted."""
    put_bytes: int
    """Bytes of their records."""
    queued: int
    """Messages in all queues, by their offsets."""
    log_end: int
    sizes: list[int]
    seconds: float


def store_folder(folder: Path) -> Path:
    """Return the path of the filled store inside `folder`."""
    return folder / STORE


def fill_store(folder: Path, wanted_bytes: int, sizes: list[int]) -> Counts:
    """Fill the store in `folder` with about `wanted_bytes` of log, shared equally by the body
    sizes, unless an earlier run has; return its counts."""
    kept = folder / COUNTS
    if kept.exists():
        return Counts(**json.loads(kept.read_text()))
    for name in (SERVER, STORE):
        shutil.rmtree(folder / name, ignore_errors=True)
    ports = Ports.free()
    group = groups.start(groups.Turbopump(), ports, folder / SERVER, store_folder(folder))
    try:
        counts = _send_messages(group, wanted_bytes, sizes)
    finally:
        group.stop()
    kept.write_text(json.dumps(asdict(counts)))
    return counts


def _send_messages(group: Group, wanted_bytes: int, sizes: list[int]) -> Counts:
    """Send messages of each size to a running group; return its counts."""
    begin, port = time.monotonic(), group.ports.broker
    sent = body_bytes = queued = 0
    for size in sizes:
        number = wanted_bytes // len(sizes) // (size + OVERHEAD_BYTES)
        given = _send_load(group.ports.namesrv_address, f"Scan{size}", size, number)
        assert not given["errors"], given["errors"]
        sent += given["all_messages"]
        body_bytes += given["all_messages"] * size
        for queue in range(QUEUES):
            fields = {"topic": f"Scan{size}", "queueId": str(queue)}
            queued += int(groups.ask(port, GET_MAX_OFFSET, fields).fields["offset"])
    body = groups.ask(port, GET_BROKER_RUNTIME_INFO, {}).body
    table = json.loads(body)["table"]
    return Counts(
        sent,
        body_bytes,
        int(table["putMessageTimesTotal"]),
        int(table["putMessageSizeTotal"]),
        queued,
        int(table["commitLogMaxOffset"]),
        sizes,
        time.monotonic() - begin,
    )


def _send_load(namesrv: str, topic: str, size: int, number: int) -> dict[str, Any]:
    """Send `number` messages with bodies of `size` bytes; return the load generator's
    JSON result."""
    command = [
        PROGRAM,
        "bench",
        "producer",
        "-n",
        namesrv,
        "-t",
        topic,
        "-s",
        str(size),
        "-w",
        str(CONNECTIONS),
        "-b",
        str(BATCH),
        "--queues",
        str(QUEUES),
        "-k",
        "true",
        "-l",
        str(TAGS),
        "--messages",
        str(number),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    given: dict[str, Any] = json.loads(done.stdout)
    return given

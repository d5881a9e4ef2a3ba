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
    """Counts by both sides."""

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


def store_of(folder: Path) -> Path:
    """Return the folder of the store."""
    return folder / STORE


def filled(folder: Path, wanted_bytes: int, sizes: list[int]) -> Counts:
    """Return the counts of a store of about that many bytes, shared equally by the body sizes."""
    kept = folder / COUNTS
    if kept.exists():
        return Counts(**json.loads(kept.read_text()))
    for name in (SERVER, STORE):
        shutil.rmtree(folder / name, ignore_errors=True)
    ports = Ports.free()
    group = groups.start(groups.Turbopump(), ports, folder / SERVER, store_of(folder))
    try:
        counts = _fill(group, wanted_bytes, sizes)
    finally:
        group.stop()
    kept.write_text(json.dumps(asdict(counts)))
    return counts


def _fill(group: Group, wanted_bytes: int, sizes: list[int]) -> Counts:
    begin, port = time.monotonic(), group.ports.broker
    sent = body_bytes = queued = 0
    for size in sizes:
        number = wanted_bytes // len(sizes) // (size + OVERHEAD_BYTES)
        given = _generate(group.ports.namesrv_address, f"Scan{size}", size, number)
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


def _generate(namesrv: str, topic: str, size: int, number: int) -> dict[str, Any]:
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

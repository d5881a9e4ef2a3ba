"""Runs bench/bound.c, which measures the minimal work of a broker on this machine.

    python -m bench.bound [SECONDS]

prints, for each workload, the rate of a bare epoll loop under the load generator, and the CPU of
both: the generator is not the bottleneck of any server that needs more CPU than it does. Then it
prints the disk's bare msync rate and the rate of copying records. Other benchmarks use `Responder`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import RESPONSE_FLAG, Command, encode
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.pull import PullMessageResponse
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.pyx.load_parts import OPAQUE_BASE
from turbopump.pyx.record import V1, append
from turbopump.pyx.region import Region

ROOT = Path(__file__).resolve().parent.parent
UNITS = ["load_frame", "frame", "record", "crc32"]
TOPIC, BROKER = "Bound", "bound"
QUEUES = 8
PULL_COUNT = 32
BACKLOG = 1 << 40  # a test reads fewer messages
RECORDS_SIZE = 64 << 20  # records for pulls, in turn: more than the caches hold


def compile_program(folder: Path) -> Path:
    """Compile bench/bound.c into the folder; return the program."""
    program = folder / "bound"
    sources = [ROOT / "bench" / "bound.c", *(ROOT / "csrc" / f"{unit}.c" for unit in UNITS)]
    command = ["gcc", "-O3", "-std=c11", f"-I{ROOT / 'csrc'}", "-o", program, *sources]
    subprocess.run(list(map(str, command)), check=True)
    return program


def run_bound(program: Path, *arguments: str) -> float:
    """Run bound.c with `msync` or `copy` and their arguments; return the operations per second."""
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return float(found["count"] / found["seconds"])


def msync_rate(program: Path, folder: Path, seconds: float) -> float:
    """Return the msyncs of a page per second on the disk of `folder`."""
    path = folder / "pages"
    try:
        return run_bound(program, "msync", str(path), str(seconds))
    finally:
        path.unlink(missing_ok=True)


def copy_rate(program: Path, folder: Path, size: int, seconds: float) -> float:
    """Return the records of `size` bytes per second that are copied into a warm mapping."""
    path = folder / "copied"
    try:
        return run_bound(program, "copy", str(path), str(size), str(seconds))
    finally:
        path.unlink(missing_ok=True)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and all its threads, ended ones included."""
    return time.clock_gettime(~pid << 3 | 2)  # its CLOCK_PROCESS_CPUTIME_ID


class Responder:
    """The running bare loop. `address` serves as name server and as broker."""

    def __init__(self, program: Path, folder: Path, body: int = 128) -> None:
        self._process = subprocess.Popen(
            [program, "respond", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stdin is not None
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"
        names = _write_replies(folder, self.address, body)
        self._process.stdin.write("".join(f"{name}\n" for name in names) + "\n")
        self._process.stdin.flush()

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used."""
        return cpu_s(self._process.pid)

    def close(self) -> None:
        """Kill the process of the bare loop."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def run_responder(body: int = 128) -> Iterator[Responder]:
    """Run a responder whose pulls return records with `body` bytes, in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = Responder(compile_program(folder), folder, body)
        try:
            yield running
        finally:
            running.close()


def _pull_body(body: int) -> bytes:
    """Return the body of a pull's answer: PULL_COUNT records as a broker stores them."""
    host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
    properties = (
        "MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x017F0000010000558C00000000000000EF\x02"
        "CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TRACE_ON\x01true\x02"
    )
    memory = bytearray(PULL_COUNT * (body + 4096))
    region, end = Region(memory), 0
    for number in range(PULL_COUNT):
        end += append(
            region,
            end,
            len(memory),
            log_offset=end,
            topic=TOPIC.encode(),
            body=b"x" * body,
            properties=properties.encode(),
            queue_id=0,
            flag=0,
            queue_offset=number,
            sys_flag=0,
            born_timestamp_ms=1,
            born_host=host,
            store_timestamp_ms=1,
            store_host=host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            version=V1,
        )
    region.release()
    return bytes(memory[:end])


def _encode_response(fields: dict[str, str], body: bytes = b"") -> bytes:
    """Encode a response frame, whose opaque bound.c replaces."""
    command = Command(0, OPAQUE_BASE, RESPONSE_FLAG, fields=fields, body=body)
    return b"".join(bytes(part) for part in encode(command))


def _write_replies(folder: Path, address: str, body: int) -> list[str]:
    """Write the replies for bound.c; return the names of those without traffic."""
    group = _pull_body(body)
    (folder / "records").write_bytes(group * (RECORDS_SIZE // len(group)))
    (folder / "group").write_text(str(len(group)))
    sent = SendMessageResponse("7F00000100002A9F0000000000000000", 0, 1_000_000, "0" * 32)
    more = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    (folder / "send").write_bytes(_encode_response({**write_header(sent), **more}))
    found = PullMessageResponse(0, (1 << 63) - 1, 0, BACKLOG)
    pull = bytearray(_encode_response(write_header(found)))
    pull[:4] = (len(pull) - 4 + len(group)).to_bytes(4, "big")
    (folder / "pull").write_bytes(pull)
    route = TopicRouteData(
        [QueueData(BROKER, QUEUES, QUEUES, 6, 0)], [BrokerData("bound", BROKER, {0: address})]
    )
    table = {
        f'{{"brokerName":"{BROKER}","queueId":{queue},"topic":"{TOPIC}"}}': {
            "lastUpdateTimestamp": 0,
            "maxOffset": BACKLOG,
            "minOffset": 0,
        }
        for queue in range(QUEUES)
    }
    stats = ",".join(f"{key}:{json.dumps(value)}" for key, value in table.items())
    bodies = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route.encode(),
        RequestCode.GET_TOPIC_STATS_INFO: f'{{"offsetTable":{{{stats}}}}}'.encode(),
    }
    for code, content in bodies.items():
        (folder / str(int(code))).write_bytes(_encode_response({}, content))
    return [str(int(code)) for code in bodies]


@dataclass(frozen=True)
class Shape:
    """A workload of the load generator: its name, and the options of `turbopump bench`."""

    name: str
    command: str
    options: tuple[str, ...]
    body: int = 128


def _send_shapes(body: int) -> list[Shape]:
    """The workloads of sends with bodies of `body` bytes."""
    size = ("-s", str(body))
    return [
        Shape(f"send 64 x 1, {body} B", "producer", ("-w", "64", *size), body),
        Shape(f"send 8 x 32, {body} B", "producer", ("-w", "8", "--in-flight", "32", *size), body),
        Shape(f"batch of 32, 8 x 1, {body} B", "producer", ("-w", "8", "-b", "32", *size), body),
        Shape(f"send 1 x 1, {body} B", "producer", ("-w", "1", *size), body),
    ]


SHAPES = [
    *_send_shapes(128),
    *_send_shapes(1024),
    Shape("send 10,000/s, 64 x 1, 128 B", "producer", ("-w", "64", "--rate", "10000")),
    Shape("pull of 32, 8 queues, 128 B", "consumer", ("-w", "8")),
    Shape(
        "pull of 32, 8 queues, 1024 B",
        "consumer",
        (
            "-w",
            "8",
        ),
        1024,
    ),
]


def load(shape: Shape, address: str, topic: str, *more: str) -> dict[str, Any]:
    """Run the load generator in a process and return its JSON result."""
    command = [
        sys.executable,
        "-m",
        "turbopump",
        "bench",
        shape.command,
        "-n",
        address,
        "-t",
        topic,
        *shape.options,
        *more,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def main(seconds: str = "3") -> None:
    """Measure each workload for `seconds`, and print the bounds of this machine."""
    print(
        f"{'workload':30} {'messages/s':>12} {'p50 us':>8} {'p99 us':>8}"
        f" {'generator us':>13} {'responder us':>13}  busy: generator, responder"
    )
    for shape in SHAPES:
        with run_responder(shape.body) as bare:
            load(shape, bare.address, TOPIC, "--duration", "0.3")  # warm
            cpu_s, begin = bare.cpu_s(), time.monotonic()
            found = load(shape, bare.address, TOPIC, "--duration", seconds)
            cpu_s, wall_s = bare.cpu_s() - cpu_s, found["duration_s"]
            assert wall_s <= time.monotonic() - begin
        count = found["all_messages"]
        mine, latency = found["generator_cpu_s"], found["latency_us"]
        print(
            f"{shape.name:30} {found['messages_per_s']:12,.0f} {latency['p50']:8,.0f}"
            f" {latency['p99']:8,.0f} {mine / count * 1e6:13.2f} {cpu_s / count * 1e6:13.2f}"
            f"  {mine / wall_s:9.0%}, {cpu_s / wall_s:9.0%}"
        )
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        program = compile_program(folder)
        print(f"{'msync of a page':30} {msync_rate(program, folder, float(seconds)):12,.0f}")
        for size in (128, 1024):
            rate = copy_rate(program, folder, size, float(seconds))
            print(f"{f'copy of {size} B records':30} {rate:12,.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Loads of the clients' gRPC service: sends, and receives with an acknowledgement of each message.

Owns the requests of `grpc_load.c`, which uses HTTP/2 through csrc/h2.c, and the minimal server that
is the floor. It must never know more about its target. To run it by hand: `python -m
bench.versus.grpc_load PORT`.
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
from typing import Any, Final

from bench.bound import cpu_s
from bench.versus.connections import ask_until_success
from bench.versus.native_load import Result
from bench.versus.pop_load import GROUP, TOPIC
from interop.support import ports

from turbopump.net.grpc.codes import ClientType, Code, MessageType
from turbopump.net.grpc.framing import PREFIX, frame_message
from turbopump.net.grpc.messages import message_class
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (
    Path(__file__).resolve().with_suffix(".c"),
    *(ROOT / "csrc" / f"{unit}.c" for unit in ("h2", "h2_library", "load_hist")),
)
LOADS: Final = {"grpc-64x1-1k": (64, 1), "grpc-8x32-1k": (8, 32)}
"""Sends: (connections, calls in flight on each)."""
RECEIVES: Final = "grpc-receive"
SIZE: Final = 1024
BATCH: Final = 32
RECEIVERS: Final = 16
INVISIBLE_S: Final = 20
READY_S: Final = 0.3


def compile_program(folder: Path) -> Path:
    """Compile grpc_load.c into the folder; return the program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "grpc_load"
    command = ["gcc", "-O2", "-std=gnu11", f"-I{ROOT / 'csrc'}", "-o", program, *SOURCES, "-ldl"]
    subprocess.run(list(map(str, command)), check=True)
    return program


def _make_message(kind: str, /, **fields: Any) -> Any:
    """Make a protobuf message of this type."""
    return message_class(kind)(**fields)


def _user_agent() -> Any:
    """The user agent in a client's settings."""
    return _make_message("UA", language=3, version="5.0.7", platform="Linux", hostname="bench")


def _producer_settings() -> Any:
    topics = [_make_message("Resource", name=TOPIC)]
    return _make_message(
        "Settings",
        client_type=ClientType.PRODUCER,
        publishing=_make_message("Publishing", topics=topics),
        user_agent=_user_agent(),
    )


def _consumer_settings() -> Any:
    expression = _make_message("FilterExpression", type=1, expression="*")
    entry = _make_message(
        "SubscriptionEntry", topic=_make_message("Resource", name=TOPIC), expression=expression
    )
    group = _make_message("Resource", name=GROUP)
    settings = _make_message(
        "Settings",
        client_type=ClientType.SIMPLE_CONSUMER,
        subscription=_make_message("Subscription", group=group, subscriptions=[entry]),
        user_agent=_user_agent(),
    )
    settings.request_timeout.seconds = 3
    return settings


def _send_request() -> Any:
    """Make a request like RocketMQ's Java client; the load writes a number into each id."""
    system = _make_message(
        "SystemProperties",
        message_id="01" + "0" * 32,
        body_encoding=1,
        message_type=MessageType.NORMAL,
        born_host="bench",
    )
    system.born_timestamp.seconds = int(time.time())
    topic = _make_message("Resource", name=TOPIC)
    one = _make_message("Message", topic=topic, system_properties=system, body=b"x" * SIZE)
    return _make_message("SendMessageRequest", messages=[one])


def _receive_request(broker: str) -> Any:
    """Make the request that receives messages from any queue of the broker."""
    queue = _make_message("MessageQueue", topic=_make_message("Resource", name=TOPIC), id=-1)
    queue.broker.name = broker
    asked = _make_message(
        "ReceiveMessageRequest",
        group=_make_message("Resource", name=GROUP),
        message_queue=queue,
        filter_expression=_make_message("FilterExpression", type=1, expression="*"),
        batch_size=BATCH,
    )
    asked.invisible_duration.seconds = INVISIBLE_S
    asked.long_polling_timeout.seconds = 5
    return asked


def _send_response() -> Any:
    """Make the response of a successful send."""
    good = _make_message("Status", code=Code.OK, message="OK")
    entry = _make_message(
        "SendResultEntry", status=good, message_id="0" * 34, transaction_id="0" * 34, offset=100_000
    )
    return _make_message("SendMessageResponse", status=good, entries=[entry])


def _run_load(program: Path, files: dict[str, bytes], *line: object) -> Result:
    """Run the load with the arguments `line` in a folder with these files; return its result."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        done = subprocess.run(
            [str(program), *map(str, line)],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found = json.loads(done.stdout)
    return Result(found["messages"] / found.pop("seconds"), **found)


def _settings_frame(settings: Any) -> bytes:
    return frame_message(_make_message("TelemetryCommand", settings=settings).SerializeToString())


def send(program: Path, port: int, connections: int, in_flight: int, seconds: float) -> Result:
    """Call SendMessage for `seconds` at a port, with `in_flight` calls on each connection; return
    the result."""
    request = frame_message(_send_request().SerializeToString())
    files = {"settings": _settings_frame(_producer_settings()), "request": request}
    return _run_load(program, files, "send", port, connections, in_flight, seconds)


def receive(program: Path, port: int, seconds: float, broker: str = "broker-a") -> Result:
    """Receive and acknowledge for some seconds, or until no message is left.

    The counted calls are acknowledgements, one for each message.
    """
    ack = _make_message(
        "AckMessageRequest",
        group=_make_message("Resource", name=GROUP),
        topic=_make_message("Resource", name=TOPIC),
    )
    files = {
        "settings": _settings_frame(_consumer_settings()),
        "request": frame_message(_receive_request(broker).SerializeToString()),
        "ack": b"\0" * PREFIX + ack.SerializeToString(),
    }
    return _run_load(program, files, "receive", port, RECEIVERS, seconds)


def make_group(port: int) -> None:
    """Make the consumer group, which RocketMQ's proxy does not do by itself."""
    body = SubscriptionGroupConfig(GROUP).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    ask_until_success(f"127.0.0.1:{port}", lambda: new_request(code, body=body))


@dataclass(frozen=True)
class MinimalServer:
    """The minimal server, which answers every call with the same bytes."""

    port: int
    pid: int


@contextmanager
def minimal_server(program: Path) -> Iterator[MinimalServer]:
    """Run the minimal server until the end of the block."""
    port = ports.free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answer").write_bytes(frame_message(_send_response().SerializeToString()))
        running = subprocess.Popen([str(program), "serve", str(port)], cwd=folder)
        try:
            time.sleep(READY_S)
            yield MinimalServer(port, running.pid)
        finally:
            running.kill()
            running.wait()


def main() -> None:
    """Measure by hand: a port and its process id; without them, the floor."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder))
        with minimal_server(program) as least:
            at = (int(sys.argv[1]), int(sys.argv[2])) if sys.argv[1:] else (least.port, least.pid)
            for connections, in_flight in LOADS.values():
                before_s = cpu_s(at[1])
                found = send(program, at[0], connections, in_flight, 3.0)
                cpu_us = (cpu_s(at[1]) - before_s) * 1e6 / found.messages
                print(f"{connections}x{in_flight}: {cpu_us:.1f} us of CPU a call, {found}")
        if sys.argv[1:]:
            before_s = cpu_s(at[1])
            found = receive(program, at[0], 3.0)
            cpu_us = (cpu_s(at[1]) - before_s) * 1e6 / max(1, found.messages)
            print(f"receive: {cpu_us:.1f} us of CPU a message, {found}")


if __name__ == "__main__":
    main()

"""`python -m bench.idle_clients.wakes --consumers 200`: a broker's processor time for a held pull.

Each consumer has a connection and holds a pull of a queue of its own. Messages arrive one by one;
each answers a pull, and its consumer pulls again. Owns the load. It must never count its own
processor time: the broker is another process, which `--turbopump` names, so that two trees can be
compared in turn. The time of the same sends without consumers is subtracted.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from interop.support.ports import free_port

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.headers.admin import CreateTopicRequest
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG, PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2

QUEUES: Final = 100
"""Queues of each topic."""
WAIT_MS: Final = 60_000
STARTS, START_S = 300, 0.1
SETTLE_S: Final = 0.5
TICK_US: Final = 1_000_000 / os.sysconf("SC_CLK_TCK")
HERE: Final = str(Path(sys.executable).with_name("turbopump"))


class Caller:
    """A connection to a broker, with one request at a time. Raises OSError."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb")

    def send(self, request: Command) -> None:
        """Send a request."""
        self.socket.sendall(b"".join(map(bytes, encode(request))))

    def receive(self) -> Command:
        """Return the next answer."""
        size = self._stream.read(4)
        return decode(size + self._stream.read(int.from_bytes(size, "big")))

    def ask(self, request: Command) -> None:
        """Send a request, and check that it succeeds."""
        self.send(request)
        response = self.receive()
        assert response.code == 0, response.remark


def cpu_us(pid: int) -> tuple[float, float]:
    """User and system time of a process, in microseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) * TICK_US, int(fields[12]) * TICK_US


class Load:
    """Consumers and a sender of a broker."""

    def __init__(self, pid: int, port: int, consumers: int) -> None:
        self._pid = pid
        self._sender = Caller(port)
        self._sent = 0
        self._places = [(f"T{at // QUEUES}", at % QUEUES) for at in range(consumers)]
        for topic in dict.fromkeys(topic for topic, _queue in self._places):
            header = CreateTopicRequest(topic, QUEUES, QUEUES, 6, "SINGLE_TAG", "TBW102")
            self._sender.ask(new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        for place in self._places * 2:
            self._sender.ask(self._make_send(*place))
        self._callers = [Caller(port) for _ in self._places]
        for caller, place in zip(self._callers, self._places, strict=True):
            caller.ask(self._make_pull(*place, 0))
        self._offsets = [2] * consumers
        for at, caller in enumerate(self._callers):
            caller.send(self._make_pull(*self._places[at], 2))
        time.sleep(SETTLE_S)

    def run(self, rounds: int, woken: bool) -> tuple[float, float, float]:
        """Send `rounds` messages to each queue; returns the broker's user and system time a message
        in microseconds, and messages a second. `woken`: consumers wait for them."""
        before, begin = cpu_us(self._pid), time.perf_counter()
        for _ in range(rounds):
            for at, place in enumerate(self._places):
                self._sender.send(self._make_send(*place))
                if woken:
                    self._wake_consumer(at)
                self._sender.receive()
        after, count = cpu_us(self._pid), rounds * len(self._places)
        rate = count / (time.perf_counter() - begin)
        return (after[0] - before[0]) / count, (after[1] - before[1]) / count, rate

    def close_connections(self) -> None:
        """Close the consumers' connections."""
        for caller in self._callers:
            caller.socket.shutdown(socket.SHUT_RDWR)
        time.sleep(SETTLE_S)

    def _wake_consumer(self, at: int) -> None:
        response = self._callers[at].receive()
        assert response.code == 0, response.remark
        self._offsets[at] += 1
        self._callers[at].send(self._make_pull(*self._places[at], self._offsets[at]))

    def _make_send(self, topic: str, queue_id: int) -> Command:
        self._sent += 1
        header = SendMessageRequestV2("producers", topic, "TBW102", 4, queue_id, 0, 1, 0)
        header.properties = f"UNIQ_KEY\x017F0000010000558C{self._sent:016X}\x02"
        return new_request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 128)

    def _make_pull(self, topic: str, queue_id: int, offset: int) -> Command:
        flags = SUSPEND_FLAG | SUBSCRIPTION_FLAG
        header = PullMessageRequest(
            "consumers", topic, queue_id, offset, 32, flags, 0, WAIT_MS, 1, "*", "TAG"
        )
        return new_request(RequestCode.PULL_MESSAGE, header)


def measure_wakes(turbopump: str, consumers: int, rounds: int) -> None:
    """Start a broker with that program, and print its processor time a wake."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        config = Path(folder, "broker.conf")
        config.write_text(
            f"brokerIP1=127.0.0.1\nlistenPort={port}\nstorePathRootDir={folder}/store\n"
            "mappedFileSizeCommitLog=268435456\n"
        )
        with Path(folder, "out").open("wb") as out:
            command = [turbopump, "broker", "-c", str(config)]
            broker = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            load = connect_load(broker.pid, port, consumers)
            load.run(1, True)
            user_us, system_us, rate = load.run(rounds, True)
            load.close_connections()
            alone_us = sum(load.run(rounds, False)[:2])
        finally:
            broker.terminate()
            broker.wait()
    wake_us = user_us + system_us - alone_us
    print(
        f"{turbopump}: {consumers} held pulls, {rate:.0f} messages a second: {wake_us:.1f} us a"
        f" wake and the next pull (with its send {user_us:.1f} user, {system_us:.1f} system)",
        flush=True,
    )


def connect_load(pid: int, port: int, consumers: int) -> Load:
    """The load of a broker that was just started. Raises OSError if its port stays closed."""
    for attempt in range(STARTS):
        try:
            return Load(pid, port, consumers)
        except ConnectionRefusedError:
            if attempt == STARTS - 1:
                raise
            time.sleep(START_S)
    raise AssertionError("the loop returns or raises")


def main() -> None:
    """Measure each program in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=200)
    parser.add_argument("--messages", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--turbopump", nargs="+", default=[HERE])
    options = parser.parse_args()
    for _ in range(options.rounds):
        for turbopump in options.turbopump:
            measure_wakes(
                turbopump, options.consumers, max(1, options.messages // options.consumers)
            )


if __name__ == "__main__":
    main()

"""A link without a socket, for peers and handlers."""

from collections.abc import Callable

import pytest
from tests.shortcuts.addresses import pack_host

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import Command, decode, encode


class Alarm:
    """A timer that a test fires."""

    def __init__(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Line:
    """A link that records sent commands, encoded and decoded as on a real connection."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.alarms: list[Alarm] = []
        self.closed = False

    def send(self, command: Command) -> None:
        self.sent.append(decode(b"".join(encode(command))))

    def close(self) -> None:
        self.closed = True

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(delay_ms, callback)
        self.alarms.append(alarm)
        return alarm

    def after_answers(self, callback: Callable[[], None]) -> None:
        callback()


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def peer(line: Line) -> Peer:
    return Peer("10.0.0.5:1234", pack_host("10.0.0.5:1234"), line)

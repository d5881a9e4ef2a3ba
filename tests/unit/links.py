"""Links of peers without a connection."""

from collections.abc import Callable

from turbopump.net.transport.peer import Timer
from turbopump.net.wire.command import Command


class NoLink:
    """A link on which nothing is sent, of a node that asks its clients nothing."""

    def send(self, command: Command) -> None:
        raise AssertionError(f"a request is sent: {command.code}")

    def close(self) -> None:
        pass

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        raise AssertionError("no timers in these tests")

    def after_answers(self, callback: Callable[[], None]) -> None:
        callback()


class WrittenDown(NoLink):
    """A link that records the sent commands."""

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

"""What the services of gRPC stand on: the broker, its handlers, the loop's clock and timers.

Owns the way from a call to a handler of remoting and back. It must never know a message of gRPC.
Made by node.py; used by everything in this folder.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.net.transport.dispatcher import Answer, Dispatcher
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.transport.turns import Steps, Turns
from turbopump.net.wire.command import Command

logger = logging.getLogger(__name__)

TICK_MS: Final = 5_000
"""Between two looks at clients and handles (RocketMQ renews handles at this pace)."""


class _NoRooms:
    """Reads are as long as they are."""

    def shorten(self) -> None:
        """Nothing to shorten."""

    def lengthen(self) -> None:
        """Nothing to lengthen."""


@dataclass(slots=True, frozen=True, kw_only=True)
class GrpcSurroundings:
    """`soon` has work done behind the turn of the loop that is under way, `call_later` after so
    many ms. `now_ms` is the wall clock, `table` has the handlers of remoting."""

    broker: BrokerContext
    table: Dispatcher
    soon: Callable[[Callable[[], None]], object]
    call_later: Callable[[int, Callable[[], None]], Timer]
    now_ms: Callable[[], int]


class GrpcGround:
    """The surroundings, and requests to the handlers. Loop thread only."""

    def __init__(self, around: GrpcSurroundings) -> None:
        self.broker = around.broker
        self.now_ms = around.now_ms
        self.soon = around.soon
        self.call_later = around.call_later
        self._table = around.table
        self._turns = Turns(around.soon, _NoRooms())

    def ask(self, request: Command, peer: Peer, done: Callable[[Command | None], None]) -> None:
        """Have a request served as if `peer` had sent it; `done` gets the answer, perhaps before
        this returns."""
        answer = self._table.dispatch(request, peer, self.now_ms())
        if isinstance(answer, Generator):
            self._turns.work(peer.host, answer).then(lambda found: _arrived(found, done))
        else:
            _arrived(answer, done)

    def work(self, host: bytes, steps: Steps[None]) -> None:
        """Go through steps, each some milliseconds; those of one host follow one another."""
        self._turns.work(host, _guarded(steps))


def _guarded(steps: Steps[None]) -> Steps[None]:
    """What fails is over, and not in the way of others."""
    try:
        yield from steps
    except Exception:
        logger.exception("work for clients of gRPC failed")


def _arrived(answer: Answer, done: Callable[[Command | None], None]) -> None:
    if answer is None or isinstance(answer, Command):
        done(answer)
    else:
        answer.then(done)

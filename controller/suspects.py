"""Brokers whose connection closed: is their process dead?

Owns that question: whose host is asked, how often, and for how long. It must never open a
connection (`probe` does) nor elect. Called by core.py, on every controller: who leads next may ask
at once, too.

A process that was killed closes its connections, and its port refuses new ones: it is dead at once.
A connection that was reset on its way says nothing of the process: its port accepts, and the broker
comes back over another connection with its next heartbeat. What a probe finds:

    refused     dead
    accepted    it lives, unless it is about to end: asked again, and later more rarely, until it is
                heard or silent for too long
    no answer   dead after 200 ms without any connection: the machine, or its network, is gone
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from turbopump.controller.liveness import Key
from turbopump.engine.later import Later

PROBE_INTERVAL_MS: Final = 40
"""A dying process closes its connections before its port, or after it."""
UNANSWERED_MS: Final = 200
UNANSWERED_TICKS: Final = 5
"""Without any connection that long after the first try, the broker is dead: in ticks, too, as this
process may have stood still while the answer came."""
SLOW_INTERVAL_MS: Final = 500
"""Behind that: a process that ends slowly refuses in the end."""
PROBES_MAX: Final = 256
"""At one time: a controller may lose the connections of all its brokers at once."""


class Probed(Enum):
    """What became of a connection to a host's port."""

    REFUSED = "refused"
    """No process listens there."""
    ACCEPTED = "accepted"
    NO_ANSWER = "no answer"


def refused(address: str) -> Later[Probed]:
    """A probe to which a closed connection means that the process ended."""
    later: Later[Probed] = Later()
    later.resolve(Probed.REFUSED)
    return later


@dataclass(slots=True)
class Suspect:
    """A broker whose connection closed; `asked_ms` is when it was asked first."""

    address: str
    due_ms: int
    asked_ms: int | None = None
    ticks: int = 0
    """Since then."""
    is_asking: bool = False
    accepted: bool = False

    def may_answer(self, now_ms: int) -> bool:
        """Whether it is too early to take silence for an answer."""
        asked_ms = now_ms if self.asked_ms is None else self.asked_ms
        return now_ms - asked_ms < UNANSWERED_MS or self.ticks < UNANSWERED_TICKS


class Suspects:
    """See the module. `is_apart` tells whether a broker was not heard since its connection closed;
    `gone` is called for each one that is dead."""

    def __init__(
        self,
        probe: Callable[[str], Later[Probed]],
        is_apart: Callable[[Key], bool],
        gone: Callable[[Key], None],
    ) -> None:
        self._probe = probe
        self._is_apart = is_apart
        self._gone = gone
        self._suspects: dict[Key, Suspect] = {}
        self._asking = 0

    def __len__(self) -> int:
        return len(self._suspects)

    def add(self, key: Key, address: str, now_ms: int) -> None:
        """The only connection of that broker closed."""
        self._suspects[key] = Suspect(address, now_ms)
        self._ask(key, now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Time has passed."""
        for key, suspect in list(self._suspects.items()):
            if not self._is_apart(key):
                del self._suspects[key]
                continue
            suspect.ticks += suspect.asked_ms is not None
            if not (suspect.accepted or suspect.may_answer(now_ms)):
                self._bury(key)
            elif now_ms >= suspect.due_ms:
                self._ask(key, now_ms)

    def _ask(self, key: Key, now_ms: int) -> None:
        suspect = self._suspects[key]
        if suspect.is_asking or self._asking >= PROBES_MAX:
            return
        if suspect.asked_ms is None:
            suspect.asked_ms = now_ms
        interval_ms = PROBE_INTERVAL_MS if suspect.may_answer(now_ms) else SLOW_INTERVAL_MS
        suspect.due_ms = now_ms + interval_ms
        suspect.is_asking = True
        self._asking += 1
        self._probe(suspect.address).then(partial(self._probed, key, suspect))

    def _probed(self, key: Key, suspect: Suspect, found: Probed) -> None:
        self._asking -= 1
        suspect.is_asking = False
        if self._suspects.get(key) is not suspect:
            return
        if found is Probed.REFUSED:
            self._bury(key)
        elif found is Probed.ACCEPTED:
            suspect.accepted = True

    def _bury(self, key: Key) -> None:
        del self._suspects[key]
        self._gone(key)

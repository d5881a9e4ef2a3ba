"""Finds out whether brokers whose connection closed are dead.

Owns the probes: which host, how often, and for how long. It must never open a connection (`probe`
does) nor elect. It works on every controller, so that the next leader knows the result at once.

A process that was killed closes its connections, and its port refuses new ones: it is dead. A
connection that was reset on its way proves nothing: the port accepts, and the broker's next
heartbeat comes over another connection. Results of a probe:

    refused     dead
    accepted    alive, unless it is about to end: probed again, and later less often, until it
                sends a heartbeat or was silent for too long
    no answer   dead after 200 ms without any connection: its machine, or the network, is down
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from turbopump.controller.liveness import Key
from turbopump.engine.deferred import Deferred

PROBE_INTERVAL_MS: Final = 40
"""Interval of probes: a dying process may close its port later than its connections."""
UNANSWERED_MS: Final = 200
"""A broker is dead if no probe connected within this time after the first probe."""
UNANSWERED_TICKS: Final = 5
"""Ticks that must have passed since the first probe, too, before a broker is dead: this process may
have been suspended while the answer came."""
SLOW_INTERVAL_MS: Final = 500
"""Interval of probes after UNANSWERED_MS, for a process that ends slowly."""
PROBES_MAX: Final = 256
"""Simultaneous probes, at most: all brokers' connections may close at once."""


class Probed(Enum):
    """Outcome of a connection to a host's port."""

    REFUSED = "refused"
    """No process listens there."""
    ACCEPTED = "accepted"
    """A process listens there."""
    NO_RESPONSE = "no answer"
    """No answer came within the probe's timeout, or another error."""


def assume_refused(address: str) -> Deferred[Probed]:
    """The default `probe`, which connects to nothing: resolved with REFUSED, so that each closed
    connection counts as the end of the broker's process."""
    return Deferred.resolved(Probed.REFUSED)


@dataclass(slots=True)
class Suspect:
    """A broker whose connection closed. Times are of the monotonic clock."""

    address: str
    due_ms: int
    """Time of the next probe."""
    asked_ms: int | None = None
    """Time of the first probe; None before it."""
    ticks: int = 0
    """Ticks since the first probe."""
    is_asking: bool = False
    """Whether a probe is in progress."""
    accepted: bool = False
    """Whether a probe was accepted."""

    def may_answer(self, now_ms: int) -> bool:
        """Whether the broker may still answer a probe: UNANSWERED_MS or UNANSWERED_TICKS have not
        passed since the first probe, so that silence does not prove death yet."""
        asked_ms = now_ms if self.asked_ms is None else self.asked_ms
        return now_ms - asked_ms < UNANSWERED_MS or self.ticks < UNANSWERED_TICKS


class DeathProbes:
    """Brokers to be probed; see the module. Times are of the monotonic clock.

    `is_disconnected` returns whether a broker sent no heartbeat since its connection closed;
    `on_dead` is called once for each dead broker, in a probe's callback or in `on_tick`.
    """

    def __init__(
        self,
        probe: Callable[[str], Deferred[Probed]],
        is_disconnected: Callable[[Key], bool],
        on_dead: Callable[[Key], None],
    ) -> None:
        self._probe = probe
        self._is_disconnected = is_disconnected
        self._on_dead = on_dead
        self._suspects: dict[Key, Suspect] = {}
        self._asking = 0

    def __len__(self) -> int:
        return len(self._suspects)

    def add(self, key: Key, address: str, now_ms: int) -> None:
        """Probe a broker whose only connection closed, at `address` (`host:port`): now, and again
        in ticks until the broker is dead or sends a heartbeat."""
        self._suspects[key] = Suspect(address, now_ms)
        self._begin_probe(key, now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Advance the time: drop brokers that are connected again, call `on_dead` for brokers that
        did not answer, and probe others that are due."""
        for key, suspect in list(self._suspects.items()):
            if not self._is_disconnected(key):
                del self._suspects[key]
                continue
            suspect.ticks += suspect.asked_ms is not None
            if not (suspect.accepted or suspect.may_answer(now_ms)):
                self._report_dead(key)
            elif now_ms >= suspect.due_ms:
                self._begin_probe(key, now_ms)

    def _begin_probe(self, key: Key, now_ms: int) -> None:
        """Begin a probe of a suspect, unless it is being probed or PROBES_MAX probes are
        under way."""
        suspect = self._suspects[key]
        if suspect.is_asking or self._asking >= PROBES_MAX:
            return
        if suspect.asked_ms is None:
            suspect.asked_ms = now_ms
        interval_ms = PROBE_INTERVAL_MS if suspect.may_answer(now_ms) else SLOW_INTERVAL_MS
        suspect.due_ms = now_ms + interval_ms
        suspect.is_asking = True
        self._asking += 1
        self._probe(suspect.address).then(partial(self._on_probed, key, suspect))

    def _on_probed(self, key: Key, suspect: Suspect, found: Probed) -> None:
        """Handle the outcome of a probe: a refused connection means that the broker is dead."""
        self._asking -= 1
        suspect.is_asking = False
        if self._suspects.get(key) is not suspect:
            return
        if found is Probed.REFUSED:
            self._report_dead(key)
        elif found is Probed.ACCEPTED:
            suspect.accepted = True

    def _report_dead(self, key: Key) -> None:
        """Drop a suspect and call `on_dead`."""
        del self._suspects[key]
        self._on_dead(key)

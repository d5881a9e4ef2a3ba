"""Heartbeats of a broker to all controllers, and the lease in their answers.

Owns when heartbeats are due and until when the lease holds; membership.py handles its end. Times
are of the monotonic clock.

A leading controller grants a lease (`leaseMs` of its answer) for a part of the time after which it
would elect another master. The lease counts from when the heartbeat was SENT: the controller counts
from when it arrived, which is later. So a broker without answers stops before another can be the
master. A controller that is not sure that it leads grants no lease. RocketMQ's controllers never do
(its brokers send heartbeats one-way); with them, the leader's success counts as a lease, which is
as good as that leader's knowledge of itself: a deposed one may succeed until it notices. Then still
no message is lost, because every member of the SyncStateSet must have acknowledged messages, and
the next master is a member.

A lease counts only in the term in which it was requested: until its first lease a new master is
not the only possible master (controller/elections.py).

All controllers get heartbeats, because any may lead next. An unreachable one costs one pending
request, and delays nothing (R34).

Tests: tests/unit/broker/ha/control/test_membership.py, tests/unit/broker/ha/test_forgotten.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from turbopump.broker.ha.control.controller_protocol import JAVA
from turbopump.broker.ha.control.controllers import CALL_TIMEOUT_MS, Controllers
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.transport.calls import Call
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.controller import BrokerHeartbeatResponse

LEASE_PART = 0.8
"""Fraction of controllerHeartBeatTimeoutMills; the rest is a margin for clock drift."""
CALLS_IN_TIMEOUT = 3
"""Number of heartbeats that fit into a time-out if none is answered: the first is given up early
enough for two more before the broker counts as dead."""


@dataclass(slots=True)
class _Beat:
    """State of the heartbeats to a controller: when the next one is due, and whether one is
    pending."""

    due_ms: int = LONG_AGO_MS
    busy: bool = False


class ControllerHeartbeats:
    """The heartbeats of a broker to all controllers, and the lease in their answers: without it a
    master may acknowledge no message. Loop thread only."""

    def __init__(
        self,
        controllers: Controllers,
        call: Call,
        make: Callable[[], Command],
        on_response: Callable[[BrokerHeartbeatResponse], None],
        steady_ms: Callable[[], int],
        *,
        interval_ms: int,
        timeout_ms: int,
    ) -> None:
        """`make` builds a heartbeat when it is sent; `on_response` is called with each successful
        answer, of any controller, after the lease was updated: a controller of this project sends
        the group's state in it. Times are brokerHeartbeatInterval and
        controllerHeartBeatTimeoutMills."""
        self.lease_until_ms = LONG_AGO_MS
        """End of the lease, in ms of the monotonic clock; LONG_AGO_MS without a lease."""
        self.leader_is_java = False
        """Whether RocketMQ's own controller leads, by its last answer: it ignores additional fields
        of a heartbeat."""
        self._controllers = controllers
        self._call = call
        self._make = make
        self._on_response = on_response
        self._steady_ms = steady_ms
        self._interval_ms = interval_ms
        self._lease_ms = int(timeout_ms * LEASE_PART)
        self._call_ms = min(CALL_TIMEOUT_MS, timeout_ms // CALLS_IN_TIMEOUT)
        self._links: dict[str, _Beat] = {}
        self._term = 0

    @property
    def has_lease(self) -> bool:
        """Whether the lease that the controllers granted in this term is valid now."""
        return self._steady_ms() < self.lease_until_ms

    def tick(self) -> None:
        """Send the heartbeats that are due to all controllers and the leader; a controller with a
        pending heartbeat gets none. Called several times a second."""
        leader = self._controllers.leader
        addresses = self._controllers.addresses
        if leader and leader not in addresses:
            addresses = [*addresses, leader]
        now_ms = self._steady_ms()
        for address in addresses:
            link = self._links.setdefault(address, _Beat())
            if not link.busy and now_ms >= link.due_ms:
                self._send(address, link)
        for address in self._links.keys() - set(addresses):
            if not self._links[address].busy:
                del self._links[address]

    def send_now(self) -> Deferred[bool]:
        """Send a heartbeat to the leader now, even if it is not due or another heartbeat is
        pending: an election needs a broker that counts as alive. Resolves to whether the leader
        accepted it, at once False if no leader is known; True does not imply a lease."""
        leader = self._controllers.leader
        if not leader:
            return Deferred.resolved(False)
        link = self._links.setdefault(leader, _Beat())
        return self._send(leader, link).map(lambda a: not isinstance(a, str) and a.code == 0)

    def begin_term(self) -> None:
        """Begin a term as master: the present lease ends, and answers to heartbeats sent before
        grant none."""
        self._term += 1
        self.lease_until_ms = LONG_AGO_MS

    def send_soon(self) -> None:
        """Make all heartbeats due at the next `tick`: another controller leads, or a lease is
        needed."""
        for link in self._links.values():
            link.due_ms = LONG_AGO_MS

    def _send(self, address: str, link: _Beat) -> Deferred[Command | str]:
        """Send a heartbeat to the controller at `address` now; resolves to its answer."""
        now_ms = self._steady_ms()
        link.busy, link.due_ms = True, now_ms + self._interval_ms
        response = self._call(address, self._make(), self._call_ms)
        response.then(partial(self._on_beat_answer, address, link, now_ms, self._term))
        return response

    def _on_beat_answer(
        self, address: str, link: _Beat, sent_ms: int, term: int, response: Command | str
    ) -> None:
        """Handle the answer to a heartbeat sent at `sent_ms` in `term`: the lease counts from then,
        and only in that term."""
        link.busy = False
        if term != self._term:
            link.due_ms = LONG_AGO_MS
        if isinstance(response, str):
            self._controllers.drop_leader(address)
            return
        if address == self._controllers.leader:
            self.leader_is_java = response.language == JAVA
        if response.code != ResponseCode.SUCCESS:
            return
        try:
            header = read_header(BrokerHeartbeatResponse, response.fields)
        except BadHeader:
            return
        lease_ms = header.lease_ms or 0
        if header.master_epoch is not None:
            self._controllers.set_leader(address)
        elif response.language == JAVA and address == self._controllers.leader:
            lease_ms = self._lease_ms
        if lease_ms > 0 and term == self._term:
            until_ms = sent_ms + min(lease_ms, self._lease_ms)
            self.lease_until_ms = max(self.lease_until_ms, until_ms)
        self._on_response(header)

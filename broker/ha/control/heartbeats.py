"""Heartbeats of a broker to all controllers, and the lease that their answers are.

Owns when they are due and until when the lease holds. It must never know the role: membership.py
says what follows when the lease is over. Times are of the monotonic clock.

A leading controller lets a broker serve as the master for a part of the time after which it would
elect another (`leaseMs` of its answer), counted from when the heartbeat was SENT: the controller
counts from when it came, which is later. So a broker that hears nothing stops before another
can be the master. A controller that is not sure that it leads grants nothing. RocketMQ's grants
nothing at all (its brokers send heartbeats one-way); there a success of the leader is taken for the
same, which is as good as that leader's knowledge of itself: a deposed one may say yes until it
notices. Then still nothing is lost, for every member of the SyncStateSet must have what is
acknowledged, and the next master is one of them.

A lease counts in the reign in which it was asked for, never in a later one: until its first lease a
new master is not the only one who may be master (controller/elections.py).

All controllers get them, as any may lead next. One that does not answer costs one request at a
time, and holds up nothing (R34).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from turbopump.broker.ha.control.controllers import CALL_TIMEOUT_MS, ControllerCall, Controllers
from turbopump.broker.ha.control.words import JAVA
from turbopump.engine.later import Later
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.controller import BrokerHeartbeatResponse

LEASE_PART = 0.8
"""Of controllerHeartBeatTimeoutMills; what is left is for clocks that do not run alike."""
CALLS_IN_TIMEOUT = 3
"""A heartbeat is given up early enough for two more before the controller counts us dead."""


@dataclass(slots=True)
class _Link:
    due_ms: int = LONG_AGO_MS
    busy: bool = False


class ControllerHeartbeats:
    """See the module."""

    def __init__(
        self,
        controllers: Controllers,
        call: ControllerCall,
        make: Callable[[], Command],
        steady_ms: Callable[[], int],
        *,
        interval_ms: int,
        timeout_ms: int,
    ) -> None:
        """`make` gives the heartbeat of this moment; intervals are brokerHeartbeatInterval and
        controllerHeartBeatTimeoutMills."""
        self.lease_until_ms = LONG_AGO_MS
        self.on_answer: Callable[[BrokerHeartbeatResponse], None] = lambda answer: None
        """Called with what a controller of ours says of the group's state beside the lease."""
        self.leader_is_java = False
        """Whether RocketMQ's own controller leads, as far as its last answer says: it passes over
        what a heartbeat says beyond RocketMQ's fields."""
        self._controllers = controllers
        self._call = call
        self._make = make
        self._steady_ms = steady_ms
        self._interval_ms = interval_ms
        self._lease_ms = int(timeout_ms * LEASE_PART)
        self._call_ms = min(CALL_TIMEOUT_MS, timeout_ms // CALLS_IN_TIMEOUT)
        self._links: dict[str, _Link] = {}
        self._reign = 0

    @property
    def holds(self) -> bool:
        """Whether the lease does."""
        return self._steady_ms() < self.lease_until_ms

    def tick(self) -> None:
        """Send what is due."""
        leader = self._controllers.leader
        addresses = self._controllers.addresses
        if leader and leader not in addresses:
            addresses = [*addresses, leader]
        now_ms = self._steady_ms()
        for address in addresses:
            link = self._links.setdefault(address, _Link())
            if not link.busy and now_ms >= link.due_ms:
                self._send(address, link)
        for address in self._links.keys() - set(addresses):
            if not self._links[address].busy:
                del self._links[address]

    def beat(self) -> Later[bool]:
        """To the leader, now; whether it took it."""
        told: Later[bool] = Later()
        leader = self._controllers.leader
        if not leader:
            told.resolve(False)
            return told
        link = self._links.setdefault(leader, _Link())
        answer = self._send(leader, link)
        answer.then(lambda a: told.resolve(not isinstance(a, str) and a.code == 0))
        return told

    def begin(self) -> None:
        """A reign begins: no lease that was asked for before counts in it."""
        self._reign += 1
        self.lease_until_ms = LONG_AGO_MS

    def hasten(self) -> None:
        """The next ones are due now: another controller leads, or a lease is wanted."""
        for link in self._links.values():
            link.due_ms = LONG_AGO_MS

    def _send(self, address: str, link: _Link) -> Later[Command | str]:
        now_ms = self._steady_ms()
        link.busy, link.due_ms = True, now_ms + self._interval_ms
        answer = self._call(address, self._make(), self._call_ms)
        answer.then(partial(self._answered, address, link, now_ms, self._reign))
        return answer

    def _answered(
        self, address: str, link: _Link, sent_ms: int, reign: int, answer: Command | str
    ) -> None:
        link.busy = False
        if reign != self._reign:
            link.due_ms = LONG_AGO_MS
        if isinstance(answer, str):
            self._controllers.doubt(address)
            return
        if address == self._controllers.leader:
            self.leader_is_java = answer.language == JAVA
        if answer.code != ResponseCode.SUCCESS:
            return
        try:
            header = read_header(BrokerHeartbeatResponse, answer.fields)
        except BadHeader:
            return
        lease_ms = header.lease_ms or 0
        if header.master_epoch is not None:
            self._controllers.leads(address)
        elif answer.language == JAVA and address == self._controllers.leader:
            lease_ms = self._lease_ms
        if lease_ms > 0 and reign == self._reign:
            until_ms = sent_ms + min(lease_ms, self._lease_ms)
            self.lease_until_ms = max(self.lease_until_ms, until_ms)
        self.on_answer(header)

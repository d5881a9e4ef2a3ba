"""The controllers of a group, and the search of a broker for their leader.

Owns the list, and which controller is taken for the leader. Times are of the monotonic clock.

    searching --a controller names a leader--> known --it refuses or does not answer--> searching

All controllers are asked at once (1005), and the first that names a leader is believed. The name
may be wrong for a while: a controller that does not lead refuses, and a silent controller is
not taken again before another controller names it. RocketMQ asks one after the other, three seconds
each.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from collections.abc import Callable, Sequence
from functools import partial

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.transport.calls import Call
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.controller import GetMetaDataResponse

LOOK_AGAIN_MS = 200
"""Interval of the search in ms: a newly elected controller is found before clients notice."""
LOOK_TIMEOUT_MS = 1_000
"""Time-out in ms of a question for the leader; it may be repeated after that."""
CALL_TIMEOUT_MS = 3_000
"""Time-out in ms of other requests to a controller, as in RocketMQ (BrokerOuterAPI)."""
CONTROLLERS_MAX = 16
"""Maximum number of controllers; a quorum has three or five."""
NOBODY_LEADS = "no controller is known to lead"


class Controllers:
    """The controllers of a group; see the module."""

    def __init__(
        self,
        addresses: Sequence[str],
        call: Call,
        steady_ms: Callable[[], int],
        period_ms: int,
        on_leader: Callable[[], None],
    ) -> None:
        """`period_ms`: interval of checks while the leader answers (RocketMQ:
        syncControllerMetadataPeriod). `on_leader` is called when another controller is taken for
        the leader."""
        self.addresses = list(addresses)[:CONTROLLERS_MAX]
        self.leader = ""
        """Address of the supposed leader, "" if unknown."""
        self._on_leader = on_leader
        self._call = call
        self._steady_ms = steady_ms
        self._period_ms = period_ms
        self._due_ms = LONG_AGO_MS
        self._asking: set[str] = set()
        self._doubted = ""

    def tick(self) -> None:
        """Search for the leader if that is due; called several times a second."""
        now_ms = self._steady_ms()
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + (self._period_ms if self.leader else LOOK_AGAIN_MS)
        for address in self.addresses:
            if address not in self._asking:
                self._asking.add(address)
                request = new_request(RequestCode.CONTROLLER_GET_METADATA_INFO)
                answer = self._call(address, request, LOOK_TIMEOUT_MS)
                answer.then(partial(self._on_metadata, address))

    def ask(self, request: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> Deferred[Command | str]:
        """Send a request to the leader."""
        leader = self.leader
        if not leader:
            return Deferred.resolved(NOBODY_LEADS)
        answer = self._call(leader, request, timeout_ms)
        answer.then(partial(self._answered, leader))
        return answer

    def leads(self, address: str) -> None:
        """Use the controller at `address` as the leader for later requests; `on_leader` is called
        if it is another one."""
        self._doubted = ""
        if address != self.leader:
            self.leader = address
            self._on_leader()

    def doubt(self, address: str) -> None:
        """Drop the controller at `address` as leader: it does not answer, or refused."""
        if address == self.leader:
            self.leader, self._doubted = "", address
            self._due_ms = min(self._due_ms, self._steady_ms())

    def _answered(self, address: str, answer: Command | str) -> None:
        if isinstance(answer, str) or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.doubt(address)

    def _on_metadata(self, address: str, answer: Command | str) -> None:
        self._asking.discard(address)
        if isinstance(answer, str):
            self.doubt(address)
            return
        if answer.code != ResponseCode.SUCCESS:
            return
        try:
            header = read_header(GetMetaDataResponse, answer.fields)
        except BadHeader:
            return
        named = header.controller_leader_address or ""
        if header.is_leader:
            self.leads(named or address)
        elif named and not self.leader and (named != self._doubted or named == address):
            self.leads(named)

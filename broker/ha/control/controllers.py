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
"""Result of `Controllers.ask` while no leader is known."""


class Controllers:
    """The controllers of a group, and the search for their leader. Loop thread only."""

    def __init__(
        self,
        addresses: Sequence[str],
        call: Call,
        steady_ms: Callable[[], int],
        period_ms: int,
        on_leader: Callable[[], None],
    ) -> None:
        """`period_ms`: interval of the checks for another leader while one is known (RocketMQ:
        syncControllerMetadataPeriod). `on_leader` is called when another controller is taken for
        the leader. Addresses are `host:port`; beyond CONTROLLERS_MAX they are ignored."""
        self.addresses = list(addresses)[:CONTROLLERS_MAX]
        """The configured addresses, in their order; the leader's may not be among them."""
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
        """If the search is due, send each controller without a pending request the request for its
        leader (1005); answers change `leader` later. Called several times a second."""
        now_ms = self._steady_ms()
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + (self._period_ms if self.leader else LOOK_AGAIN_MS)
        for address in self.addresses:
            if address not in self._asking:
                self._asking.add(address)
                request = new_request(RequestCode.CONTROLLER_GET_METADATA_INFO)
                response = self._call(address, request, LOOK_TIMEOUT_MS)
                response.then(partial(self._on_metadata, address))

    def ask(self, request: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> Deferred[Command | str]:
        """Send a request to the supposed leader; resolves to its answer of any code, or to the
        reason why there is no answer: at once NOBODY_LEADS if no leader is known. `leader` is
        dropped first if it did not answer or does not lead."""
        leader = self.leader
        if not leader:
            return Deferred.resolved(NOBODY_LEADS)
        response = self._call(leader, request, timeout_ms)
        response.then(partial(self._check_leader, leader))
        return response

    def set_leader(self, address: str) -> None:
        """Use the controller at `address` as the leader for later requests; if it was not the
        leader before, `on_leader` is called now."""
        self._doubted = ""
        if address != self.leader:
            self.leader = address
            self._on_leader()

    def drop_leader(self, address: str) -> None:
        """If the controller at `address` is the supposed leader, drop it, because it refused or
        does not answer; the search is due at the next tick. Otherwise no-op."""
        if address == self.leader:
            self.leader, self._doubted = "", address
            self._due_ms = min(self._due_ms, self._steady_ms())

    def _check_leader(self, address: str, response: Command | str) -> None:
        """Drop the leader if it did not answer a request, or no longer leads."""
        if isinstance(response, str) or response.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.drop_leader(address)

    def _on_metadata(self, address: str, response: Command | str) -> None:
        """Handle a controller's answer to 1005: take the controller that it names for the
        leader."""
        self._asking.discard(address)
        if isinstance(response, str):
            self.drop_leader(address)
            return
        if response.code != ResponseCode.SUCCESS:
            return
        try:
            header = read_header(GetMetaDataResponse, response.fields)
        except BadHeader:
            return
        named = header.controller_leader_address or ""
        if header.is_leader:
            self.set_leader(named or address)
        elif named and not self.leader and (named != self._doubted or named == address):
            self.set_leader(named)

"""The controllers of a group, as one of its brokers finds them.

Owns the list, and which of them is taken for the leader. It must never know what is asked. Called
by membership.py and its parts; times are of the monotonic clock.

Who leads is asked of all of them at once (1005); the first that names one is believed. That
may be wrong for a while: who is asked and does not lead says so, and who does not answer is asked
no more before another names it again. RocketMQ asks one after the other, each three seconds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from turbopump.engine.later import Later
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.controller import GetMetaDataResponse

LOOK_AGAIN_MS = 200
"""While none leads: a controller that was just elected is found before clients notice."""
LOOK_TIMEOUT_MS = 1_000
"""One that does not say for so long who leads may be asked again; another answers meanwhile."""
CALL_TIMEOUT_MS = 3_000
"""RocketMQ's for all that a broker asks a controller (BrokerOuterAPI)."""
CONTROLLERS_MAX = 16
"""A quorum has three or five."""
NOBODY_LEADS = "no controller is known to lead"


class ControllerCall(Protocol):
    """How a broker asks a controller: net/transport/calls.py, or a simulated network."""

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Later[Command | str]:
        """The answer, or a text that says why there is none."""


class Controllers:
    """See the module."""

    def __init__(
        self,
        addresses: Sequence[str],
        call: ControllerCall,
        steady_ms: Callable[[], int],
        period_ms: int,
    ) -> None:
        """`period_ms`: between two looks while the leader answers (RocketMQ:
        syncControllerMetadataPeriod)."""
        self.addresses = list(addresses)[:CONTROLLERS_MAX]
        self.leader = ""
        """Where the leader is believed to be, "" if that is not known."""
        self.on_leader: Callable[[], None] = lambda: None
        """Called when another one is believed to lead."""
        self._call = call
        self._steady_ms = steady_ms
        self._period_ms = period_ms
        self._due_ms = LONG_AGO_MS
        self._asking: set[str] = set()
        self._doubted = ""

    def tick(self) -> None:
        """Several times a second."""
        now_ms = self._steady_ms()
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + (self._period_ms if self.leader else LOOK_AGAIN_MS)
        for address in self.addresses:
            if address not in self._asking:
                self._asking.add(address)
                request = new_request(RequestCode.CONTROLLER_GET_METADATA_INFO)
                answer = self._call(address, request, LOOK_TIMEOUT_MS)
                answer.then(partial(self._told, address))

    def ask(self, request: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> Later[Command | str]:
        """Of the leader."""
        leader = self.leader
        if not leader:
            nobody: Later[Command | str] = Later()
            nobody.resolve(NOBODY_LEADS)
            return nobody
        answer = self._call(leader, request, timeout_ms)
        answer.then(partial(self._answered, leader))
        return answer

    def leads(self, address: str) -> None:
        """That one is known to lead."""
        self._doubted = ""
        if address != self.leader:
            self.leader = address
            self.on_leader()

    def doubt(self, address: str) -> None:
        """That one does not answer, or says that it does not lead."""
        if address == self.leader:
            self.leader, self._doubted = "", address
            self._due_ms = min(self._due_ms, self._steady_ms())

    def _answered(self, address: str, answer: Command | str) -> None:
        if isinstance(answer, str) or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.doubt(address)

    def _told(self, address: str, answer: Command | str) -> None:
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

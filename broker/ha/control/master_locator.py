"""Search for the HA address of the master that a controller has named.

The controller names the master's address for clients, the master itself the port for replicas.

    idle --look_for--> asking --answered--> found --its log arrives--> waiting
                          ^---- not followed after ASK_AGAIN_MS --'

Owns the request (EXCHANGE_BROKER_HA_INFO, 906) and its interval. RocketMQ's replica waits until a
name server reports the address in the answer to a registration; that may take as long as the period
between two.

A RocketMQ master does not record an epoch in which no message was written before the next epoch,
and does not report that: its replica cannot insist on such an epoch (`fenced`). The answer's
language reveals a RocketMQ master.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from collections.abc import Callable
from functools import partial

from turbopump.broker.ha.control.controller_protocol import JAVA
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.transport.calls import Call
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.routes import ExchangeHaInfo

FIRST_ASK_MS = 100
"""Interval in ms of the first requests: the master was elected a moment ago, and takes its role
now."""
FIRST_ASKS = 20
"""Number of requests at the interval FIRST_ASK_MS."""
ASK_MS = 1_000
"""Interval in ms of later requests."""
ASK_AGAIN_MS = 5_000
"""Interval in ms for a master that was found, and is not followed: its port may have changed."""
TIMEOUT_MS = 1_000
"""Time-out in ms of a request."""


class MasterLocator:
    """Searches the HA address of the master that a controller has named, by asking that master
    (906); one master at a time. Loop thread only; times are of the monotonic clock. Addresses are
    `host:port`."""

    def __init__(
        self,
        call: Call,
        found: Callable[[str, bool], None],
        steady_ms: Callable[[], int],
    ) -> None:
        """`found(ha_address, fenced)` is called with the master's address for replicas, at each
        answer; `fenced`: the master records its epoch, as all but RocketMQ's do, so the replica
        may insist on it."""
        self.address = ""
        """The master's address for clients, "" if no master is to be followed."""
        self._call = call
        self._found = found
        self._steady_ms = steady_ms
        self._search = 0
        self._asked = 0
        self._busy = self._known = False
        self._due_ms = LONG_AGO_MS

    def locate_master(self, address: str) -> None:
        """Look for the master whose address for clients is `address`, from the start; the first
        request is sent now, and answers of an earlier master are ignored. "" stops the search."""
        self.address = address
        self._search += 1
        self._asked = 0
        self._busy = self._known = False
        self._due_ms = LONG_AGO_MS
        self.tick(False)

    def tick(self, follows: bool) -> None:
        """Send the master a request for its HA address (906) if that is due; called several times a
        second. `follows`: this replica receives the master's log now, so no request is needed."""
        now_ms = self._steady_ms()
        if not self.address or self._busy:
            return
        if follows:
            self._due_ms = now_ms + ASK_AGAIN_MS
        elif now_ms >= self._due_ms:
            self._busy = True
            self._asked += 1
            if self._known:
                wait_ms = ASK_AGAIN_MS
            else:
                wait_ms = FIRST_ASK_MS if self._asked <= FIRST_ASKS else ASK_MS
            self._due_ms = now_ms + wait_ms
            request = new_request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaInfo())
            response = self._call(self.address, request, TIMEOUT_MS)
            response.then(partial(self._on_response, self._search))

    def master_reported(self, address: str, ha_address: str, fenced: bool) -> None:
        """If `address` is of the master that is looked for, call `found` now with the address
        `ha_address` that this master sent unasked (906 in the other direction). No-op for another
        master, or if `ha_address` is ""."""
        if address == self.address and ha_address:
            self._known = True
            self._due_ms = self._steady_ms() + ASK_AGAIN_MS
            self._found(ha_address, fenced)

    def _on_response(self, search: int, response: Command | str) -> None:
        """Call `found` with the HA address in the master's answer; an answer of an earlier search
        is ignored."""
        if search != self._search:
            return  # answer of an earlier master
        self._busy = False
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            return
        try:
            ha_address = read_header(ExchangeHaInfo, response.fields).master_ha_address
        except BadHeader:
            return
        if ha_address:
            self._known = True
            self._due_ms = max(self._due_ms, self._steady_ms() + ASK_AGAIN_MS)
            self._found(ha_address, response.language != JAVA)

"""Requests to the current master of a broker group.

Owns the pending requests, bounded in bytes, and the conclusions from a response about its broker.
It must never choose a broker.

Only requests to a broker that hangs wait: their bytes are bounded for each broker, and requests to
other brokers do not wait for them.

Tests: tests/unit/proxy/test_cluster_map.py
"""

from collections.abc import Callable, Iterable
from typing import Final

from turbopump.net.transport.calls import Call
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.proxy.cluster_map import ClusterMap

TIMEOUT_MS: Final = 3_000
"""Timeout of a response, besides the time for which a request may wait for messages."""
HELD_OF_BROKER_MAX: Final = 64 << 20
"""Bytes of requests that wait for one broker's responses, at most."""
HELD_MAX: Final = 256 << 20
"""Bytes of requests that wait for all brokers' responses, at most."""
REQUEST_SIZE: Final = 4_000
"""Estimated bytes of a request besides its body."""
_NOT_THE_MASTER: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Response codes of a broker that is no longer the master, or has lost a topic."""


class BrokerCalls:
    """Pending requests to brokers. Loop thread only. `held` is their size in bytes."""

    def __init__(self, known: ClusterMap, call: Call) -> None:
        self._known = known
        self._call = call
        self._held: dict[str, int] = {}
        self.held = 0

    def send_to_master(
        self,
        broker_name: str,
        request: Command,
        topics: Iterable[str],
        done: Callable[[Command], None],
        wait_ms: int = 0,
    ) -> None:
        """Send a request to a group's master; `done` is called once with the response, or with an
        error response that has the reason as remark.

        Without a master (SYSTEM_ERROR) or with too many pending bytes (FLOW_CONTROL) `done` is
        called before this returns. `topics` are the topics whose routes may be wrong if it fails;
        `wait_ms` is the time for which the broker may hold the request for messages, added to
        TIMEOUT_MS.
        """
        address = self._known.master_address(broker_name)
        if not address:
            self._known.note_failure(broker_name, address, topics)
            text = f"{broker_name} has no master"
            done(new_response(request, ResponseCode.SYSTEM_ERROR, text))
            return
        body = request.body
        parts = body if isinstance(body, list) else [body]
        size = REQUEST_SIZE + sum(map(len, parts))
        held = self._held.get(address, 0)
        if held + size > HELD_OF_BROKER_MAX or self.held + size > HELD_MAX:
            text = (
                f"too many bytes wait for {broker_name}" if held + size > HELD_OF_BROKER_MAX else ""
            )
            text = text or "too many bytes wait for brokers"
            done(new_response(request, ResponseCode.FLOW_CONTROL, text))
            return
        self.held += size
        self._held[address] = held + size

        def answered(response: Command | str) -> None:
            self.held -= size
            self._held[address] -= size
            if not self._held[address]:
                del self._held[address]
            if isinstance(response, str):
                self._known.note_failure(broker_name, address, topics)
                done(new_response(request, ResponseCode.SYSTEM_ERROR, response))
                return
            self._known.note_response(broker_name, address)
            if response.code in _NOT_THE_MASTER:
                for topic in topics:
                    self._known.topics.mark_doubtful(topic)
            done(response)

        self._call(address, request, TIMEOUT_MS + wait_ms).then(answered)

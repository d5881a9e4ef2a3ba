"""Requests to brokers: to the master of a group, wherever it is now.

Owns what is under way, bounded in bytes, and what an answer says of a broker. It must never choose
a broker. Called by ground.py and members.py.

A broker that hangs holds what was sent to it, no more: what waits for it is bounded, and calls to
others do not wait for those.
"""

from collections.abc import Callable, Iterable
from typing import Final

from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.proxy.cluster_map import ClusterMap
from turbopump.proxy.name_servers import Call

TIMEOUT_MS: Final = 3_000
"""For an answer, besides what a request may wait for messages."""
HELD_OF_BROKER_MAX: Final = 64 << 20
HELD_MAX: Final = 256 << 20
"""Bytes of requests that wait for their answers, of one broker and of all."""
REQUEST_SIZE: Final = 4_000
"""Bytes of a request besides its body."""
_NOT_THE_MASTER: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""What a broker may answer that is no master any more, or has lost a topic."""


class BrokerCalls:
    """Requests that are under way. Loop thread only."""

    def __init__(self, known: ClusterMap, call: Call) -> None:
        self._known = known
        self._call = call
        self._held: dict[str, int] = {}
        self.held = 0

    def ask(
        self,
        broker_name: str,
        request: Command,
        topics: Iterable[str],
        done: Callable[[Command], None],
        wait_ms: int = 0,
    ) -> None:
        """`done` gets the answer, or one that says why there is none. `topics` are those whose
        routes may be wrong if it fails; `wait_ms`: so long the request may wait for messages."""
        address = self._known.master(broker_name)
        if not address:
            self._known.failed(broker_name, address, topics)
            text = f"{broker_name} has no master"
            done(response(request, ResponseCode.SYSTEM_ERROR, text))
            return
        body = request.body
        parts = body if isinstance(body, list) else [body]
        size = REQUEST_SIZE + sum(map(len, parts))
        held = self._held.get(address, 0)
        if held + size > HELD_OF_BROKER_MAX or self.held + size > HELD_MAX:
            text = f"too much waits for {broker_name}" if held + size > HELD_OF_BROKER_MAX else ""
            text = text or "too much waits for brokers"
            done(response(request, ResponseCode.FLOW_CONTROL, text))
            return
        self.held += size
        self._held[address] = held + size

        def answered(answer: Command | str) -> None:
            self.held -= size
            self._held[address] -= size
            if not self._held[address]:
                del self._held[address]
            if isinstance(answer, str):
                self._known.failed(broker_name, address, topics)
                done(response(request, ResponseCode.SYSTEM_ERROR, answer))
                return
            self._known.answered(broker_name, address)
            if answer.code in _NOT_THE_MASTER:
                for topic in topics:
                    self._known.topics.doubt(topic)
            done(answer)

        self._call(address, request, TIMEOUT_MS + wait_ms).then(answered)

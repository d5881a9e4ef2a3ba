"""A master of the container, accessed by the container's other brokers without a connection.

Owns the way of a request through the master's own table of handlers, so that it is checked like a
request from outside. It must never touch a store, nor keep a master: each request uses the masters
of that moment.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from turbopump.broker.container.members import InnerBroker
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire.command import Command
from turbopump.net.wire.topics import PERM_WRITE

CallLater = Callable[..., Timer]
"""`call_later` of the loop: runs the second argument after the first, in seconds."""


class _NoLink:
    """Link of a peer without a connection: requests to it are dropped."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later

    def send(self, command: Command) -> None:
        """Drop the request: the peer has no connection."""

    def close(self) -> None:
        """Do nothing: the peer has no connection."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_ms`, unless the returned Timer is cancelled."""
        return self._call_later(delay_ms / 1_000, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Call `callback` now: no answer waits to be sent."""
        callback()


class LocalMaster:
    """A master in this process, to which another broker of the container passes requests without a
    connection (Neighbour of escape/topic_masters.py). Loop thread only; to be used at once, because
    the broker may stop."""

    def __init__(self, node: InnerBroker, now_ms: Callable[[], int], call_later: CallLater) -> None:
        """`now_ms` returns the wall clock in ms since 1970."""
        self._node, self._now_ms, self._call_later = node, now_ms, call_later

    @property
    def name(self) -> str:
        """brokerName of the master's group."""
        return self._node.context.config.broker_name

    @property
    def address(self) -> str:
        """The master's address `host:port` for clients."""
        return self._node.address

    def writable_queue_count(self, topic: str) -> int:
        """Number of the topic's queues that accept messages now; 0 if the master does not know the
        topic, is stopping, or is no longer a master."""
        broker = self._node.context
        found = broker.topics.peek_topic(topic)
        if found is None or broker.shutting_down or not broker.role.is_active_master:
            return 0
        return (
            found.write_queue_nums if found.perm & PERM_WRITE and broker.config.is_writable else 0
        )

    def ask(self, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Run the master's handler of the request within this call. Resolves to its answer of any
        code, within the call or later, or after `timeout_ms` to a text that there is no answer."""
        asked: Deferred[Command | str] = Deferred()

        def answered(response: Any) -> None:
            if not asked.done:
                timer.cancel()
                asked.resolve(response if isinstance(response, Command) else _NO_RESPONSE)

        timer = self._call_later(timeout_ms / 1_000, partial(answered, None))
        peer = Peer(self.address, self._node.context.store_host, _NoLink(self._call_later))
        response: Any = self._node.table.dispatch_trusted(request, peer, self._now_ms())
        if isinstance(response, Generator):
            response = _run_all(response)
        if isinstance(response, Deferred):
            response.then(answered)
        else:
            answered(response)
        return asked


_NO_RESPONSE: Final = "the broker of this process did not answer in time"


def _run_all(steps: Generator[None, None, Any]) -> Any:
    """Run all steps of a request at once and return its result; a request with a single message has
    few steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value

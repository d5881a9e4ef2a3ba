"""Queries to name servers, one after another until one answers.

Owns the order of the name servers: a query begins with the server that answered last. It must never
keep an answer, nor open a connection.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from turbopump.engine.deferred import Deferred
from turbopump.engine.json_steps import UNBOUNDED
from turbopump.net.transport.calls import Call
from turbopump.net.wire.bodies import BadBody, Steps, object_in_steps, run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.route import ClusterInfo, TopicRouteData

logger = logging.getLogger(__name__)

_RESPONSES: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})

ROUTE_MAX: Final = 4 << 20
"""Maximum size in bytes of a name server's answer that a broker reads, a quarter of a frame. A
group with a replica needs some 240 bytes, so this is a topic on 17,000 groups; its route is read in
some 250 ms, a route of a thousand groups in 15 ms."""

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Absent:
    """The result of a query that found nothing: no name server answered, or none knows the name."""

    text: str
    """A sentence for a peer or the log."""
    is_certain: bool
    """True: a node reported that the name does not exist; False: no node answered, it may exist."""


class NameServerQueries:
    """The name servers of a node. Loop thread only.

    `servers` returns the addresses (`host:port`) at the time of a query; servers are queried in
    this order, beginning with the server that answered last. `timeout_ms` is the time-out of the
    last server, `next_ms` (0: the same) the time-out of a server if there is another to query. An
    answer of more than `body_max` bytes counts as a failure. `warns`: the first of consecutive
    failed queries is logged. With `run_soon`, which runs a callback after other work of the loop, a
    long answer is read in steps of a few ms, one answer at a time; without it, at once.
    """

    def __init__(
        self,
        call: Call,
        servers: Callable[[], Sequence[str]],
        timeout_ms: int,
        *,
        next_ms: int = 0,
        body_max: int = sys.maxsize,
        warns: bool = False,
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._call, self._servers = call, servers
        self._timeout_ms, self._next_ms = timeout_ms, next_ms or timeout_ms
        self._body_max = body_max
        self._warns = self._may_warn = warns
        self._first = ""
        self._run_soon = run_soon
        self._reading: deque[Callable[[], bool]] = deque()
        """Answers that are read in steps: a call does a step and returns whether it is the last."""

    def query_route(self, header: GetRouteInfoRequest) -> Deferred[TopicRouteData | Absent]:
        """Begin to query the route of a topic. The Deferred resolves, perhaps at once, to the
        route, or to an Absent, which is certain if a name server answered TOPIC_NOT_EXIST."""
        text = f"No topic route info in name server for the topic: {header.topic}"

        def read(response: Command) -> Steps[TopicRouteData | Absent]:
            if response.code == ResponseCode.TOPIC_NOT_EXIST:
                return Absent(text, is_certain=True)
            members = yield from self._decode_object(response)
            return (yield from TopicRouteData.from_json_in_steps(members))

        return self._query_in_turn(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, read)

    def query_cluster(self) -> Deferred[ClusterInfo | Absent]:
        """Begin to query all brokers of all clusters. The Deferred resolves, perhaps at once, to
        the answer, or to an Absent that is not certain."""

        def read(response: Command) -> Steps[ClusterInfo | Absent]:
            members = yield from self._decode_object(response)
            return (yield from ClusterInfo.from_json_in_steps(members))

        return self._query_in_turn(RequestCode.GET_BROKER_CLUSTER_INFO, None, read)

    def _query_in_turn(
        self, code: int, header: Any, read: Callable[[Command], Steps[T | Absent]]
    ) -> Deferred[T | Absent]:
        """Query the name servers in turn until one answers; `read` converts the answer. Anything
        that it raises counts as a failure; only BadBody is expected."""
        found: Deferred[T | Absent] = Deferred()
        left = self._in_order()

        def ask_next(failure: str) -> None:
            if not left:
                self._warn_once(failure)
                found.resolve(Absent(f"no name server answers: {failure}", is_certain=False))
                return
            address = left.pop(0)
            timeout_ms = self._next_ms if left else self._timeout_ms

            def answered(response: Command | str) -> None:
                if isinstance(response, str):
                    failed(response)
                elif response.code not in _RESPONSES:
                    failed(f"{address} answered {response.code}: {response.remark}")
                else:
                    self._read(read(response), address, succeeded, failed)

            def failed(failure: str) -> None:
                self._prefer_other_server(address)
                ask_next(failure)

            def succeeded(result: T | Absent) -> None:
                self._may_warn = self._warns
                found.resolve(result)

            self._call(address, new_request(code, header), timeout_ms).then(answered)

        ask_next("no address")
        return found

    def _decode_object(self, response: Command) -> Steps[dict[str, Any]]:
        """Decode the JSON object in the body of an answer, in steps. Raises BadBody for other bytes
        and over `body_max` bytes."""
        if len(response.body) > self._body_max:
            raise BadBody(f"{len(response.body)} bytes are more than the limit")
        return (yield from object_in_steps(response.body, UNBOUNDED))

    def _read(
        self,
        steps: Steps[T],
        address: str,
        succeeded: Callable[[T], None],
        failed: Callable[[str], None],
    ) -> None:
        """Read the answer of the server at `address`, a long one in steps after other long ones,
        and call one of the functions, with the result or a sentence."""

        def read_on() -> bool:
            try:
                if self._run_soon is not None:
                    next(steps)
                    return False
                result = run_to_result(steps)
            except StopIteration as done:
                result = done.value
            except BadBody as error:
                failed(f"{address}: {error}")
                return True
            except Exception as error:  # else the query would never end
                logger.exception("the answer of name server %s cannot be read", address)
                failed(f"{address}: {type(error).__name__}: {error}")
                return True
            succeeded(result)
            return True

        if not read_on():
            self._reading.append(read_on)
            if len(self._reading) == 1:
                self._read_soon()

    def _read_soon(self) -> None:
        """Have the next step run after other work of the loop."""
        assert self._run_soon is not None, "only then are there steps"
        self._run_soon(self._read_step)

    def _read_step(self) -> None:
        """Read the first waiting answer on."""
        is_last = True  # also if the callback of the result raises
        try:
            is_last = self._reading[0]()
        finally:
            if is_last:
                self._reading.popleft()
            if self._reading:
                self._read_soon()

    def _warn_once(self, failure: str) -> None:
        """Log the first of consecutive failed queries."""
        if self._may_warn:
            self._may_warn = False
            logger.warning("no name server answers: %s", failure)

    def _in_order(self) -> list[str]:
        """Return the addresses of the name servers, the server to query first at the front."""
        servers = list(self._servers())
        at = servers.index(self._first) if self._first in servers else 0
        return servers[at:] + servers[:at]

    def _prefer_other_server(self, address: str) -> None:
        """Begin later queries with the next server, if this server was the first."""
        order = self._in_order()
        if order and order[0] == address:
            self._first = order[1 % len(order)]

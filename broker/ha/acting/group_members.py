"""Members of this broker's group, as reported by its name servers.

Owns the last answer of each name server (GET_BROKER_MEMBER_GROUP, 901) and when the next request is
due. Which replica acts is decided in acting_state.py.

A name server of RocketMQ 4 does not know request 901: it is asked for the route of a topic that all
brokers of the group have (BrokerOuterAPI: compatibleWithOldNameSrv). It sends no answer to 901; nor
does a server that is starting, or whose network is cut:

    901 not answered     the route is requested; a server that has answered 901 before is first
                         asked for that again
    901 refused as an    it is an old server
    unknown code
    route answered       901 is requested once more; a server is old if it does not answer that
                         and then answers the route again
    an empty route       means that there is no member only if the server is old and never
                         answered 901; 901 is requested next

A notice that the lowest id changed (905) only causes an immediate request: any peer can send one,
and a lost notice does no harm.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.transport.calls import Call
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import GetBrokerMemberGroupRequest, GetRouteInfoRequest
from turbopump.net.wire.names import (
    SYNC_MEMBER_PREFIX,
    check_lengths,
)
from turbopump.net.wire.route import (
    MASTER_ID,
    TopicRouteData,
)

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
"""Time-out of a request in ms (RocketMQ: 3 s)."""
FRESH_MS: Final = 5_000
"""Age in ms up to which a name server's answer is merged with the others'."""
SETTLED_MS: Final = 3_000
"""Age in ms at which reported replicas count. A name server that has just started knows no broker
before it has registered there again, which takes a second or two."""
MEMBERS_MAX: Final = 64
"""Maximum number of members in an answer; a longer answer counts as none."""
AGAIN_MS: Final = 1_000
"""Time-out in ms of request 901 after an answered route. A server that answers the route answers
901 as fast; on an old one a starting master waits no longer than this."""
AGAIN_FIRST: Final = 1
"""Number of repeated 901 requests to a name server that has answered one before, until a route is
requested."""
OLD_ROUTES: Final = 2
"""Number of answered routes, with 901 unanswered between them, after which a server counts as
old."""


@dataclass(slots=True)
class _NameServer:
    """A name server's last answer about the group's members, and the state of the requests to
    it."""

    members: dict[int, str] | None = None
    """Address by id; None until it answers."""
    answered_ms: int = LONG_AGO_MS
    due_ms: int = LONG_AGO_MS
    busy: bool = False
    again: bool = False
    knows: bool = False
    """Whether it has ever answered 901."""
    failures: int = 0
    """Requests 901 not answered since the last answer to one."""
    routes: int = 0
    """Routes answered meanwhile, in a row."""
    refuses: bool = False
    """Whether it refused 901 as an unknown code."""
    asks_route: bool = False
    """Whether a route is requested next."""

    @property
    def is_old(self) -> bool:
        """Whether the server counts as a name server of RocketMQ 4, which does not know request
        901."""
        return self.refuses or self.routes >= OLD_ROUTES

    def note_failure(self, *, refused: bool) -> None:
        """Note that the server did not answer the request, or (`refused`) does not know its code;
        this decides whether a route is requested next."""
        if self.asks_route:
            self.refuses, self.routes = False, 0  # the address may have another server by now
            self.asks_route = False
            return
        self.failures += 1
        self.refuses, self.knows = refused, self.knows and not refused
        self.asks_route = refused or not self.knows or self.failures > AGAIN_FIRST

    def counts_as_response(self, *, is_empty: bool) -> bool:
        """Note an answer; return whether its members count: an empty route counts only from a
        server of RocketMQ 4."""
        if not self.asks_route:
            self.knows, self.refuses, self.failures, self.routes = True, False, 0, 0
            return True
        self.routes += 1
        self.asks_route = self.is_old and not is_empty
        if not self.asks_route:
            self.due_ms = LONG_AGO_MS
        return not is_empty or (self.is_old and not self.knows)


@dataclass(slots=True)
class GroupMembers:
    """The members of this broker's group, as reported by its name servers, which are asked
    periodically. Loop thread only; times are in ms of the monotonic clock."""

    cluster: str
    """brokerClusterName of the group."""
    broker_name: str
    """brokerName of the group."""
    call: Call
    """Sends a request to a name server."""
    steady_ms: Callable[[], int]
    """Returns the monotonic clock in ms."""
    on_response: Callable[[], None] = lambda: None
    """Called after each accepted answer of a name server, when `members` includes it."""
    changed_ms: int = LONG_AGO_MS
    """Time at which a name server last reported other replicas than in its previous answer (the
    master does not count); LONG_AGO_MS before the first answer."""
    _servers: dict[str, _NameServer] = field(default_factory=dict)

    def tick(self, servers: Collection[str], period_ms: int) -> None:
        """Send a request to each name server that is due, at most one at a time for each. `servers`
        are the configured addresses: others are forgotten with their answers. `period_ms` is the
        interval of requests."""
        now_ms = self.steady_ms()
        for address in [one for one in self._servers if one not in servers]:
            del self._servers[address]
        for address in servers:
            server = self._servers.setdefault(address, _NameServer())
            if not server.busy and now_ms >= min(server.due_ms, server.answered_ms + period_ms):
                self._send_query(address, server, now_ms + period_ms)

    def refresh_soon(self) -> None:
        """Make a request to each name server due at the next `tick`, or after its pending
        request."""
        for server in self._servers.values():
            server.due_ms, server.again = LONG_AGO_MS, server.busy

    def is_old(self, address: str) -> bool:
        """Whether the name server at that address counts as RocketMQ 4's, which does not know 901;
        False for an unknown address."""
        server = self._servers.get(address)
        return server is not None and server.is_old

    @property
    def answered_ms(self) -> int:
        """Time of the last accepted answer of any name server; LONG_AGO_MS without an answer."""
        return max((one.answered_ms for one in self._servers.values()), default=LONG_AGO_MS)

    @property
    def is_stable(self) -> bool:
        """Whether an answer at least SETTLED_MS after the last change of the replicas has confirmed
        them."""
        return self.answered_ms - self.changed_ms >= SETTLED_MS

    @property
    def members(self) -> dict[int, str]:
        """Address `host:port` by broker id, this broker's included; id 0 is the master's. The union
        of all name servers' answers of the last FRESH_MS, or of their last answers if none is that
        recent; for an id with several addresses the newest answer counts. Empty before the first
        answer."""
        now_ms = self.steady_ms()
        known = [one for one in self._servers.values() if one.members is not None]
        fresh = [one for one in known if now_ms - one.answered_ms <= FRESH_MS]
        found: dict[int, str] = {}
        for server in sorted(fresh or known, key=lambda one: one.answered_ms):
            assert server.members is not None, "`known` has only servers with members"
            found |= server.members
        return found

    def addresses_of_others(self, own: Callable[[], str]) -> Callable[[], list[str]]:
        """Return a function that returns the present addresses of all members but the broker at
        address `own()`, in the order of their ids."""
        return lambda: [at for _, at in sorted(self.members.items()) if at != own()]

    def _send_query(self, address: str, server: _NameServer, due_ms: int) -> None:
        """Send a name server request 901, or the request for a route in its place; the next one is
        due at `due_ms`."""
        server.busy, server.again, server.due_ms = True, False, due_ms
        if server.asks_route:
            topic = SYNC_MEMBER_PREFIX + self.broker_name
            route = GetRouteInfoRequest(topic, accept_standard_json_only=True)
            request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
        else:
            header = GetBrokerMemberGroupRequest(self.cluster, self.broker_name)
            request = new_request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        timeout_ms = AGAIN_MS if server.routes and not server.asks_route else TIMEOUT_MS
        self.call(address, request, timeout_ms).then(partial(self._on_response, address, server))

    def _on_response(self, address: str, server: _NameServer, response: Command | str) -> None:
        """Handle a name server's answer, or the reason why it is missing."""
        server.busy = False
        if server.again:
            server.due_ms = LONG_AGO_MS
        is_refused = (
            isinstance(response, Command)
            and response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        )
        if isinstance(response, str) or is_refused:
            server.note_failure(refused=is_refused)
            return
        try:
            members = self._read_route(response) if server.asks_route else read_members(response)
        except BadBody as error:
            logger.warning(
                "name server %s returned no valid list of the group's members: %s", address, error
            )
            server.note_failure(refused=False)
            return
        if not server.counts_as_response(is_empty=not members):
            return
        now_ms = self.steady_ms()
        if server.members is None or _without_master(server.members) != _without_master(members):
            self.changed_ms = now_ms
        server.members, server.answered_ms = members, now_ms
        self.on_response()

    def _read_route(self, response: Command) -> dict[int, str]:
        """Read address `host:port` by broker id from the route of the topic that all brokers of the
        group have; {} if the topic does not exist. Raises BadBody."""
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if response.code != ResponseCode.SUCCESS:
            raise BadBody(f"answered with code {response.code}: {(response.remark or '')[:200]}")
        route = TopicRouteData.from_json(bodies.load_small(response.body))
        found: dict[int, str] = {}
        for group in route.broker_datas:
            if (group.cluster, group.broker_name) == (self.cluster, self.broker_name):
                found |= group.broker_addrs
        return _check_members(found)


def read_members(response: Command) -> dict[int, str]:
    """Read address `host:port` by broker id from the answer to 901. Raises BadBody, also for a
    refusal and for more than MEMBERS_MAX members."""
    if response.code != ResponseCode.SUCCESS:
        raise BadBody(f"answered with code {response.code}: {(response.remark or '')[:200]}")
    group = bodies.as_object(bodies.load_small_object(response.body).get("brokerMemberGroup") or {})
    addresses = bodies.read_table(group, "brokerAddrs", bodies.as_text)
    return _check_members({bodies.as_int(key, "brokerId"): at for key, at in addresses.items()})


def _without_master(members: dict[int, str]) -> dict[int, str]:
    """The members without the master."""
    return {key: at for key, at in members.items() if key != MASTER_ID}


def _check_members(members: dict[int, str]) -> dict[int, str]:
    """Return the members, or raise BadBody if there are too many, or an address is too long."""
    if len(members) > MEMBERS_MAX:
        raise BadBody(f"{len(members)} brokers in a group, more than the limit")
    for address in members.values():
        wrong = check_lengths(brokerAddr=address)
        if wrong is not None:
            raise BadBody(wrong)
    return members

"""Content and schedule of the registrations at name servers.

Owns the schedule of REGISTER_BROKER for each name server, and the bodies. It must never send:
name_servers.py does, with a single request at a time for each name server, so that a dead name
server delays no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import islice

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.deferred import Deferred, gather
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.routes import (
    BrokerHeartbeatRequest,
    QueryDataVersionRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
)
from turbopump.net.wire.hosts import join, split_host_port
from turbopump.net.wire.registration.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.route import MASTER_ID
from turbopump.net.wire.topics import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigs,
)

MIN_PERIOD_MS, MAX_PERIOD_MS = 10_000, 60_000
"""RocketMQ's bounds, in ms, of registerNameServerPeriod."""
RETRY_MS = 1_000
"""Delay in ms between two attempts to reach a name server, and between a registration and the next
full registration if the connection was lost meanwhile. A name server that returns has no routes
until this broker has registered."""
FIRST_REFUSED_MS = 500
"""Delay in ms after a refused registration; doubled up to the period. A refusal costs both sides as
much as a success, and a retry a second later seldom succeeds."""
MAX_WAIT_MS = 3_000
"""Maximum time in ms that a request which changed a topic waits for name servers that do not
answer."""
MAX_SINGLE_TOPICS = 500
"""Maximum changed topics per registration, some 100 KB; the rest follows with the next
registration. All topics of a large broker take a second of work, which a flood of new topics must
not cost each time."""
MAX_INLINE_TOPICS = 50
"""A request with more topics is made on a disk thread: each topic takes the loop some 20 us."""


@dataclass(slots=True)
class Work:
    """A registration to send: of all topics (full), or of the named topics."""

    full: bool
    """Whether all topics are registered."""
    topics: list[str]
    """Names of the changed topics, in the order of their changes; also of a full registration."""


class RegistrationOutcome(Enum):
    """Outcome of a registration sent to a name server."""

    TAKEN = auto()
    """The name server accepted the registration."""
    REFUSED = auto()
    """The name server refused the registration, or closed the connection."""
    UNREACHED = auto()
    """No connection was made, or no answer received in time."""


@dataclass(slots=True)
class _Waiter:
    """A change that waits for its registration at a name server, until the deadline at the
    latest."""

    later: Deferred[None]
    deadline_ms: int


@dataclass(slots=True)
class NameServerState:
    """Schedule of the registrations at a name server: periodic, at changes, again after failures,
    and after the loss of its connection.

    A name server refuses a single topic of a broker it does not know, or (RocketMQ 4) takes it for
    all of the broker's topics: changes are sent alone only after a full registration has succeeded
    on the same connection. Times are in ms of the monotonic clock: a clock that is set back an hour
    must not keep the broker unregistered for that long.
    """

    address: str
    """Address `host:port` of the name server."""
    period_ms: int
    """Interval of full registrations."""
    single: bool
    """Whether changed topics may be sent alone (enableSingleTopicRegister)."""
    _next_full_ms: int = 0
    _last_full_ms: int = LONG_AGO_MS
    _registered: bool = False
    _lost: bool = False
    _failures: int = 0
    _refusals: int = 0
    _busy: bool = False
    _changed: dict[str, None] = field(default_factory=dict)
    _waiting: list[_Waiter] = field(default_factory=list)
    _sent: list[_Waiter] = field(default_factory=list)

    def note_changed(self, topics: Sequence[str], now_ms: int) -> Deferred[None]:
        """Record changed topics (an empty list: all) for the next `take_due_registration`. Resolves
        when this name server has them or a full registration has failed, after MAX_WAIT_MS at the
        latest; at once if the last full registration failed."""
        later: Deferred[None] = Deferred()
        if not topics:
            self._next_full_ms = min(self._next_full_ms, now_ms)
        self._changed.update(dict.fromkeys(topics))
        if self._failures:
            later.resolve(None)  # unreachable: its next full registration includes the change
        else:
            self._waiting.append(_Waiter(later, now_ms + MAX_WAIT_MS))
        return later

    def take_due_registration(self, now_ms: int) -> Work | None:
        """Return the registration to send now, after which nothing is due until `apply_outcome` is
        called; None if nothing is due. Also resolves changes that have waited for MAX_WAIT_MS; to
        be called several times a second."""
        self._resolve_overdue(now_ms)
        if self._busy:
            return None
        full = now_ms >= self._next_full_ms
        if not full and self._changed and not self._failures:
            full = not (self.single and self._registered)
        if not full and (not self._changed or self._failures):
            return None
        self._busy = True
        if full:
            self._last_full_ms = now_ms
        work = Work(full, list(islice(self._changed, None if full else MAX_SINGLE_TOPICS)))
        for topic in work.topics:
            del self._changed[topic]
        if not self._changed:
            self._sent, self._waiting = self._waiting, []
        return work

    def apply_outcome(self, work: Work, outcome: RegistrationOutcome, now_ms: int) -> None:
        """Apply the outcome of the registration `work` that `take_due_registration` returned:
        schedule the next one, and resolve the changes in it unless it must be repeated as a full
        registration."""
        self._busy = False
        if outcome is RegistrationOutcome.TAKEN:
            self._failures = self._refusals = 0
            self._registered = True
            if work.full:
                self._next_full_ms = now_ms + (RETRY_MS if self._lost else self.period_ms)
                self._lost = False
            self._resolve_sent()
        elif work.full:
            self._registered = False
            self._failures += 1
            self._next_full_ms = now_ms + self._retry_ms(outcome)
            self._waiting, self._sent = [], self._sent + self._waiting
            self._resolve_sent()
        else:
            # The name server no longer knows this broker: it was restarted.
            self._registered = False
            self._next_full_ms = now_ms
            self._waiting, self._sent = self._sent + self._waiting, []

    def on_connection_lost(self, now_ms: int) -> None:
        """Make a full registration due, now or RETRY_MS after the last, because the connection was
        lost: the name server was restarted, or forgets this broker. RocketMQ's name server forgets
        a broker whose connection it sees closed, with a delay and perhaps after the new
        registration (BatchUnregistrationService): a further registration follows RETRY_MS later.
        This is also the minimum interval for a name server that closes each connection."""
        self._registered = False
        self._lost = True
        again_ms = max(now_ms, self._last_full_ms + RETRY_MS)
        self._next_full_ms = min(self._next_full_ms, again_ms)

    def on_removed(self) -> None:
        """Resolve all pending changes, because the name server was removed from the
        configuration."""
        for waiter in [*self._sent, *self._waiting]:
            if not waiter.later.done:
                waiter.later.resolve(None)
        self._sent, self._waiting = [], []

    def _retry_ms(self, outcome: RegistrationOutcome) -> int:
        """The pause in ms before the next registration after this outcome; it grows with
        refusals."""
        if outcome is RegistrationOutcome.UNREACHED:
            self._refusals = 0
            return RETRY_MS
        delay_ms = min(FIRST_REFUSED_MS << min(self._refusals, 10), self.period_ms)
        self._refusals += 1
        return delay_ms

    def _resolve_sent(self) -> None:
        """Resolve the changes in the registration that was sent."""
        sent, self._sent = self._sent, []
        for waiter in sent:
            if not waiter.later.done:
                waiter.later.resolve(None)

    def _resolve_overdue(self, now_ms: int) -> None:
        """Resolve the changes whose deadline has passed."""
        for waiter in [*self._sent, *self._waiting]:
            if now_ms >= waiter.deadline_ms and not waiter.later.done:
                waiter.later.resolve(None)
        self._waiting = [waiter for waiter in self._waiting if not waiter.later.done]


class Registration:
    """The broker's registration at every configured name server: its schedule and its requests.
    Loop thread only. A broker whose role has changed registers again under its new id:
    `note_changed` without topics."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        address: str,
        broker_id: Callable[[], int] = lambda: MASTER_ID,
    ) -> None:
        """`address` is this broker's for clients, `host:port`; `broker_id` returns its current id:
        0 while it is the master."""
        host, port = split_host_port(address)
        replication = config.replication
        self.ha_address = join(
            replication.broker_ip2 or host, replication.ha_listen_port or port + 1
        )
        """Address `host:port` at which replicas find this broker while it is the master."""
        self.on_master: Callable[[str, str], None] = lambda address, ha_address: None
        """Called on a replica with the live master's addresses for clients and for replicas, both
        `host:port`, whenever an answer contains them."""
        self._config = config
        self._topics = topics
        self._address = address
        self._broker_id = broker_id
        self.servers = [self._new_state(address) for address in config.namesrv_addr]
        """The configured name servers, in the order of namesrvAddr; replaced by `reconfigure`."""

    def reconfigure(self) -> list[NameServerState]:
        """Apply changed settings of the configuration. registerNameServerPeriod and
        enableSingleTopicRegister take effect at the next registration.

        For a changed namesrvAddr, returns the new name servers, which are due at once; changes stop
        waiting for removed name servers.
        """
        before = {server.address: server for server in self.servers}
        addresses = dict.fromkeys(self._config.namesrv_addr)
        added = [self._new_state(address) for address in addresses if address not in before]
        for address, server in before.items():
            if address not in addresses:
                server.on_removed()
        known = before | {server.address: server for server in added}
        self.servers = [known[address] for address in addresses]
        for server in self.servers:
            server.period_ms = self._period_ms
            server.single = self._config.enable_single_topic_register
        return added

    def find(self, address: str) -> NameServerState | None:
        """Return the state of the name server at the address `host:port`, None if it is not
        configured."""
        return next((one for one in self.servers if one.address == address), None)

    def _new_state(self, address: str) -> NameServerState:
        """Make the state of a name server."""
        single = self._config.enable_single_topic_register
        return NameServerState(address, self._period_ms, single)

    @property
    def _period_ms(self) -> int:
        """Interval of full registrations in ms (registerNameServerPeriod, within bounds)."""
        return min(max(self._config.register_name_server_period_ms, MIN_PERIOD_MS), MAX_PERIOD_MS)

    def note_changed(self, topics: Sequence[str], now_ms: int) -> Deferred[None]:
        """Record changed topics for the next registration at all name servers (an empty list: all
        topics, for a changed role or brokerPermission). Resolves when every name server has them or
        is not waited for; `now_ms` is of the monotonic clock."""
        asked = [server.note_changed(topics, now_ms) for server in self.servers]
        return gather(asked).map(lambda _all: None)

    def begin_request(self, work: Work) -> tuple[int, Callable[[], Command]]:
        """Begin to make a REGISTER_BROKER request (103) for `work`; a deleted topic makes it full.

        Returns the number of topics in it, and a function that makes the request from the topics of
        this moment and that any thread may call.
        """
        found = {name: self._topics.peek_topic(name) for name in work.topics}
        table = {name: one for name, one in found.items() if one is not None}
        full = work.full or len(table) < len(found)
        if full:
            table = self._topics.all_topics()
        return len(table), partial(self._make_request, self._topics.data_version, table, full=full)

    def _make_request(
        self, version: DataVersion, table: dict[str, TopicConfig], *, full: bool
    ) -> Command:
        """Make the request with these topics, their permissions limited by brokerPermission; not
        `full`: of changed topics only."""
        mask = self._config.broker_permission
        if mask & (PERM_READ | PERM_WRITE) != PERM_READ | PERM_WRITE:
            table = {name: replace(one, perm=one.perm & mask) for name, one in table.items()}
        body = RegisterBrokerBody(TopicConfigs(version, table)).encode()
        replication = self._config.replication
        acts = replication.enable_slave_acting_master
        header = RegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._broker_id(),
            ha_server_addr=self.ha_address,
            heartbeat_timeout_millis=replication.broker_not_active_timeout_ms if acts else None,
            enable_acting_master=acts,
            body_crc32=body_crc32(body),
            changes_only=None if full else True,
        )
        return new_request(RequestCode.REGISTER_BROKER, header, body)

    def heartbeat_request(self, *, old: bool = False) -> Command:
        """Make a one-way BROKER_HEARTBEAT (904), a sign of life between two registrations. For an
        `old` name server, RocketMQ 4's, it is a QUERY_DATA_VERSION (322) instead
        (BrokerOuterAPI)."""
        if old:
            asked = QueryDataVersionRequest(
                self._config.broker_name,
                self._address,
                self._config.broker_cluster_name,
                self._broker_id(),
            )
            body = self._topics.data_version.encode()
            return new_request(RequestCode.QUERY_DATA_VERSION, asked, body, oneway=True)
        header = BrokerHeartbeatRequest(
            self._config.broker_cluster_name, self._address, self._config.broker_name
        )
        return new_request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)

    def unregister_request(self) -> Command:
        """Make an UNREGISTER_BROKER (104) with the broker's current id, for a clean stop."""
        header = UnRegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._broker_id(),
        )
        return new_request(RequestCode.UNREGISTER_BROKER, header)

    def apply_response(self, response: Command, now_ms: int) -> bool:
        """Apply a name server's answer to a registration: call `on_master`, and set the order flag
        of topics that it names. Returns True if it is a success; no other answer has an effect.
        `now_ms` is of the wall clock, in ms since 1970.

        RocketMQ sets the order flag of topics in ORDER_TOPIC_CONFIG and never clears it
        (TopicConfigManager.updateOrderTopicConfig).
        """
        if response.code != ResponseCode.SUCCESS:
            return False
        registered = read_header(RegisterBrokerResponse, response.fields)
        if registered.master_addr and registered.ha_server_addr:
            self.on_master(registered.master_addr, registered.ha_server_addr)
        if not response.body:
            return True
        try:
            ordered = bodies.read_table(
                bodies.load_small_object(response.body), "table", bodies.as_text
            )
        except bodies.BadBody:
            return True
        known = [config for name in ordered if (config := self._topics.get(name)) is not None]
        self._topics.put_all([replace(config, order=True) for config in known], now_ms)
        return True

"""What the name servers have to be told of this broker, and when.

Owns the schedule of REGISTER_BROKER for each name server, and the bodies. It must never send: the
shell in node.py does, one request at a time for each name server, so that a dead one holds up
nobody. Called by node.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from turbopump.broker.config import BrokerConfig
from turbopump.broker.role import MASTER_ID
from turbopump.broker.topics import TopicTable
from turbopump.engine.later import Later
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.routes import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
)
from turbopump.net.wire.hosts import join, split
from turbopump.net.wire.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.topics import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigs,
)

MIN_PERIOD_MS, MAX_PERIOD_MS = 10_000, 60_000  # RocketMQ bounds registerNameServerPeriod so
FIRST_RETRY_MS = 500
"""After a failed registration; doubled up to the period. A name server that starts beside us is
found within a second."""
MAX_WAIT_MS = 3_000
"""A request that changed a topic waits no longer than this for name servers that do not answer."""
MAX_SINGLE_TOPICS = 500
"""Changed topics of one registration, some 100 KB; the rest follows with the next one. All topics
of a large broker take a second of work, which a flood of new ones must not cost each time."""
MAX_INLINE_TOPICS = 50
"""A request with more topics is made on a disk thread: each takes the loop some 20 us."""


@dataclass(slots=True)
class Work:
    """One registration to send: of all topics, or (not full) of those named."""

    full: bool
    topics: list[str]


@dataclass(slots=True)
class _Waiter:
    later: Later[None]
    deadline_ms: int


@dataclass(slots=True)
class NameServerState:
    """The registration at one name server: periodic, at changes, again after failures.

    A name server refuses a single topic of a broker it does not know: changes are sent alone only
    after a full registration has succeeded. Times are of a clock that nobody sets: one set back an
    hour must not keep the broker unregistered for that long.
    """

    address: str
    period_ms: int
    single: bool
    _next_full_ms: int = 0
    _registered: bool = False
    _failures: int = 0
    _busy: bool = False
    _changed: dict[str, None] = field(default_factory=dict)
    _waiting: list[_Waiter] = field(default_factory=list)
    _sent: list[_Waiter] = field(default_factory=list)

    def changed(self, topics: Sequence[str], now_ms: int) -> Later[None]:
        """Topics have changed (none named: all); resolves when this name server knows, or is not to
        be waited for."""
        later: Later[None] = Later()
        if not topics:
            self._next_full_ms = min(self._next_full_ms, now_ms)
        self._changed.update(dict.fromkeys(topics))
        if self._failures:
            later.resolve(None)  # it is down: its next full registration will tell it
        else:
            self._waiting.append(_Waiter(later, now_ms + MAX_WAIT_MS))
        return later

    def take(self, now_ms: int) -> Work | None:
        """What to send now; None if nothing is due or a request is under way."""
        self._give_up_waiting(now_ms)
        if self._busy:
            return None
        full = now_ms >= self._next_full_ms
        if not full and self._changed and not self._failures:
            full = not (self.single and self._registered)
        if not full and (not self._changed or self._failures):
            return None
        self._busy = True
        work = Work(full, list(islice(self._changed, None if full else MAX_SINGLE_TOPICS)))
        for topic in work.topics:
            del self._changed[topic]
        if not self._changed:
            self._sent, self._waiting = self._waiting, []
        return work

    def answered(self, work: Work, ok: bool, now_ms: int) -> None:
        """The name server took the registration, or it refused or did not answer."""
        self._busy = False
        if ok:
            self._failures = 0
            self._registered = True
            if work.full:
                self._next_full_ms = now_ms + self.period_ms
            self._resolve_sent()
        elif work.full:
            self._registered = False
            delay_ms = min(FIRST_RETRY_MS << min(self._failures, 10), self.period_ms)
            self._failures += 1
            self._next_full_ms = now_ms + delay_ms
            self._waiting, self._sent = [], self._sent + self._waiting
            self._resolve_sent()
        else:
            # It does not know us (any more): it was restarted.
            self._registered = False
            self._next_full_ms = now_ms
            self._waiting, self._sent = self._sent + self._waiting, []

    def _resolve_sent(self) -> None:
        sent, self._sent = self._sent, []
        for waiter in sent:
            if not waiter.later.done:
                waiter.later.resolve(None)

    def _give_up_waiting(self, now_ms: int) -> None:
        for waiter in [*self._sent, *self._waiting]:
            if now_ms >= waiter.deadline_ms and not waiter.later.done:
                waiter.later.resolve(None)
        self._waiting = [waiter for waiter in self._waiting if not waiter.later.done]


class Registration:
    """The broker's registration at every configured name server.

    A broker whose role has changed registers anew under its new id: `changed` without topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        address: str,
        broker_id: Callable[[], int] = lambda: MASTER_ID,
    ) -> None:
        """`broker_id` is what this broker is now: 0 while it is the master."""
        host, port = split(address)
        replication = config.replication
        self.ha_address = join(
            replication.broker_ip2 or host, replication.ha_listen_port or port + 1
        )
        """`host:port` at which replicas find this broker while it is the master."""
        self.on_master: Callable[[str, str], None] = lambda address, ha_address: None
        """Told the address of the live master and its replication port, by each answer to a
        replica that names them."""
        self._config = config
        self._topics = topics
        self._address = address
        self._broker_id = broker_id
        period_ms = min(max(config.register_name_server_period_ms, MIN_PERIOD_MS), MAX_PERIOD_MS)
        self.servers = [
            NameServerState(server, period_ms, config.enable_single_topic_register)
            for server in config.namesrv_addr
        ]

    def changed(self, topics: Sequence[str], now_ms: int) -> Later[None]:
        """Topics have changed (none named: all of them, by brokerPermission); resolves when every
        name server that answers knows."""
        done: Later[None] = Later()
        missing = len(self.servers)
        if not missing:
            done.resolve(None)

        def one_done(_: None) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                done.resolve(None)

        for server in self.servers:
            server.changed(topics, now_ms).then(one_done)
        return done

    def request(self, work: Work) -> tuple[int, Callable[[], Command]]:
        """REGISTER_BROKER for some work; a topic that is gone makes it a full one.

        How many topics it tells, and what makes the request: any thread may call that.
        """
        table = self._topics.all()
        gone = any(name not in table for name in work.topics)
        if not work.full and not gone:
            table = {name: table[name] for name in work.topics}
        return len(table), partial(self._request, self._topics.data_version, table)

    def _request(self, version: DataVersion, table: dict[str, TopicConfig]) -> Command:
        mask = self._config.broker_permission
        if mask & (PERM_READ | PERM_WRITE) != PERM_READ | PERM_WRITE:
            table = {name: replace(one, perm=one.perm & mask) for name, one in table.items()}
        body = RegisterBrokerBody(TopicConfigs(version, table)).encode()
        header = RegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._broker_id(),
            ha_server_addr=self.ha_address,
            enable_acting_master=False,
            body_crc32=body_crc32(body),
        )
        return new_request(RequestCode.REGISTER_BROKER, header, body)

    def unregister_request(self) -> Command:
        """UNREGISTER_BROKER, for a clean stop."""
        header = UnRegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._broker_id(),
        )
        return new_request(RequestCode.UNREGISTER_BROKER, header)

    def take_answer(self, answer: Command, now_ms: int) -> bool:
        """Whether a name server's answer is a success; adopts the order topics it names.

        RocketMQ sets the order flag of topics in ORDER_TOPIC_CONFIG and never clears it
        (TopicConfigManager.updateOrderTopicConfig).
        """
        if answer.code != ResponseCode.SUCCESS:
            return False
        told = read_header(RegisterBrokerResponse, answer.fields)
        if told.master_addr and told.ha_server_addr:
            self.on_master(told.master_addr, told.ha_server_addr)
        if not answer.body:
            return True
        try:
            ordered = bodies.table(bodies.load_object(answer.body), "table", bodies.as_text)
        except bodies.BadBody:
            return True
        known = [config for name in ordered if (config := self._topics.get(name)) is not None]
        self._topics.put_all([replace(config, order=True) for config in known], now_ms)
        return True

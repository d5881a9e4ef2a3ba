"""The route table: which brokers live, which topics they have, where a client finds both.

Owns all of a name server's routing state (RocketMQ: RouteInfoManager). It must never read a clock,
a socket or a configuration: time, connections and switches are arguments, connections opaque. What
has to be told to brokers is returned as notices. Called by the handlers and by node.py.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace

from turbopump.net.wire.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE, DataVersion, TopicConfig, TopicConfigs

log = logging.getLogger(__name__)

MASTER_ID = 0
DEFAULT_TIMEOUT_MS = 120_000
"""How long a broker that names no heartbeat timeout lives after its last sign of life."""

SYNC_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics of a broker group's own coordination; their routes always show the true ids."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2

MAX_BROKERS = 10_000  # addresses: a registration of 1,000 topics costs some 300 KB here
MAX_QUEUE_DATAS = 2_000_000  # (topic, broker) pairs: some 500 MB, ten times RocketMQ's advice

BrokerKey = tuple[str, str]
"""Cluster and address: what a live broker is known by."""


@dataclass(slots=True)
class Registration:
    """What a broker says of itself. `acting_master` None: a broker older than 5.0 did not say."""

    cluster: str
    name: str
    broker_id: int
    address: str
    topics: TopicConfigs
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    filter_servers: list[str] | None = None


@dataclass(slots=True)
class Notice:
    """The smallest broker id of a group changed; `targets` are the addresses to tell (905)."""

    targets: list[str]
    broker_name: str
    min_broker_id: int
    min_address: str
    offline_address: str | None = None
    ha_address: str | None = None


@dataclass(slots=True)
class Registered:
    """The outcome of a registration; with `refusal` nothing was changed.

    A replica is told the address and the replication address of its live master.
    """

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notices: list[Notice] = field(default_factory=list)


@dataclass(slots=True)
class Expired:
    """A broker that fell silent: the connection to close and what to tell its group."""

    key: BrokerKey
    connection: Hashable
    notices: list[Notice]


@dataclass(slots=True)
class _Live:
    broker_name: str
    broker_id: int
    updated_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_address: str

    def expired(self, now_ms: int) -> bool:
        return self.updated_ms + self.timeout_ms < now_ms


class RouteTable:
    """One writer, run to completion: every public method leaves the tables consistent."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._groups: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}
        self._mappings: dict[str, dict[str, object]] = {}
        self._connections: dict[Hashable, set[BrokerKey]] = {}
        self._queue_count = 0

    def register(
        self,
        broker: Registration,
        connection: Hashable,
        now_ms: int,
        *,
        delete_missing_topics: bool = False,
    ) -> Registered:
        """Take over a broker and its topics (RocketMQ: RouteInfoManager.registerBroker).

        A claim to an id whose live holder has a higher state version is answered like a success
        and not taken over, whatever the order of arrival. Decided before anything is changed. One
        of the holder itself is of an earlier reign and came late: were it taken, others' late ones
        would pass for newer.
        """
        if self._conflicts(broker, now_ms):
            if self._groups[broker.name].broker_addrs[broker.broker_id] == broker.address:
                return Registered()
            log.warning("%s claims id %d of %s with an older state version: ignored",
                        broker.address, broker.broker_id, broker.name)  # fmt: skip
            # Whoever claims another place no longer serves in its old one.
            left = self.unregister(broker.cluster, broker.name, broker.address)
            return Registered(notices=left)
        refusal = self._refusal(broker)
        if refusal is not None:
            return Registered(refusal)
        result = Registered()
        before = self._live.get((broker.cluster, broker.address))
        if before is not None and before.broker_name != broker.name:
            # Renamed and back before its old connection was seen to close.
            result.notices = self.unregister(broker.cluster, before.broker_name, broker.address)
        group = self._groups.get(broker.name)
        first = group is None
        if group is None:
            group = BrokerData(broker.cluster, broker.name)
            self._groups[broker.name] = group
        self._clusters.setdefault(broker.cluster, set()).add(broker.name)
        group.enable_acting_master = bool(broker.acting_master)
        group.zone_name = broker.zone
        ids = group.broker_addrs
        takes_lead = bool(ids) and broker.broker_id < min(ids)
        for other in [key for key, address in ids.items() if address == broker.address]:
            if other != broker.broker_id:
                del ids[other]
        first = first or broker.broker_id not in ids
        ids[broker.broker_id] = broker.address
        self._take_topics(broker, group, first, delete_missing_topics)
        self._take_live(broker, connection, now_ms)
        if broker.broker_id != MASTER_ID:
            self._tell_master(result, broker.cluster, ids)
        if takes_lead:
            result.notices.append(_new_lead(group, broker.ha_address))
        return result

    def unregister(self, cluster: str, name: str, address: str) -> list[Notice]:
        """Forget a broker; a group without addresses takes its topics with it."""
        live = self._live.pop((cluster, address), None)
        if live is not None:
            self._unbind((cluster, address), live.connection)
            name = live.broker_name
        self._filter_servers.pop((cluster, address), None)
        group = self._groups.get(name)
        if group is None:
            return []
        ids = group.broker_addrs
        lead = min(ids)
        gone = [broker_id for broker_id, held in ids.items() if held == address]
        for broker_id in gone:
            del ids[broker_id]
        log.info("broker %s %s of cluster %s is gone", name, address, cluster)
        if not ids:
            self._drop_group(name)
            return []
        if not group.enable_acting_master:
            return []
        if MASTER_ID not in ids:
            for topic in self._topics_of.get(name, ()):
                self._queues[topic][name].perm &= ~PERM_WRITE
        return [_lost_lead(group, address)] if lead in gone else []

    def connection_closed(self, connection: Hashable) -> list[Notice]:
        """Forget every broker that registered last through this connection."""
        notices: list[Notice] = []
        for key in self._connections.pop(connection, set()):
            notices += self.unregister(key[0], self._live[key].broker_name, key[1])
        return notices

    def scan(self, now_ms: int) -> list[Expired]:
        """Forget the brokers without a sign of life for longer than their timeout."""
        silent = [(key, live) for key, live in self._live.items() if live.expired(now_ms)]
        return [
            Expired(key, live.connection, self.unregister(key[0], live.broker_name, key[1]))
            for key, live in silent
        ]

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """A sign of life (904, 322); an address that is not registered stays so."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.updated_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that the broker registered last."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def route(
        self, topic: str, *, acting_master: bool = False, zone: str | None = None
    ) -> TopicRouteData | None:
        """Where the queues of a topic are, None if nowhere (RocketMQ: pickupTopicRouteData).

        With `acting_master` the lowest replica of a group without master and without write
        permission is shown as its master. With `zone` groups whose master is elsewhere are left
        out.
        """
        queues = self._queues.get(topic)
        if not queues:
            return None
        groups = [_copy(self._groups[name]) for name in queues]
        route = TopicRouteData([replace(queue) for queue in queues.values()], groups)
        if self._filter_servers:
            for group in groups:
                for address in group.broker_addrs.values():
                    servers = self._filter_servers.get((group.cluster, address))
                    if servers:
                        route.filter_server_table[address] = servers
        route.topic_queue_mapping_by_broker = self._mappings.get(topic)
        if acting_master and not topic.startswith(SYNC_MEMBER_GROUP_PREFIX):
            _show_acting_masters(route)
        if zone is not None:
            _keep_zone(route, zone)
        return route

    def cluster_info(self) -> ClusterInfo:
        """All groups and clusters."""
        groups = {name: _copy(group) for name, group in self._groups.items()}
        return ClusterInfo(groups, {name: sorted(names) for name, names in self._clusters.items()})

    def member_group(self, name: str) -> dict[int, str]:
        """Address of each id of a group; empty for an unknown one."""
        group = self._groups.get(name)
        return {} if group is None else dict(group.broker_addrs)

    def topics(self) -> list[str]:
        """Every topic."""
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster's groups, each once."""
        topics: set[str] = set()
        for name in self._clusters.get(cluster, ()):
            topics |= self._topics_of.get(name, set())
        return sorted(topics)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Names of clusters and groups, which brokers create as topics, and some broker's address
        for whoever wants the other system topics too."""
        names: dict[str, None] = {}
        for cluster, groups in self._clusters.items():
            names |= dict.fromkeys((cluster, *sorted(groups)))
        address = next((next(iter(g.broker_addrs.values())) for g in self._groups.values()), None)
        return list(names), address

    def topics_with_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag (of its first broker) is wanted."""
        return [
            topic
            for topic, queues in self._queues.items()
            if wanted(next(iter(queues.values())).topic_sys_flag)
        ]

    def wipe_write_permission(self, name: str) -> int:
        """Take the write permission of a group's topics; how many topics there are."""
        return self._set_permission(name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, name: str) -> int:
        """Make a group's topics readable and writable; how many topics there are."""
        return self._set_permission(name, lambda _: PERM_READ | PERM_WRITE)

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Queues of a topic by hand (217); those of unknown groups are left out. False, and
        nothing changed, where the table would be over MAX_QUEUE_DATAS."""
        known = {
            queue.broker_name: queue for queue in queues if queue.broker_name in self._groups
        }
        new = len(known.keys() - self._queues.get(topic, {}).keys())
        if self._queue_count + new > MAX_QUEUE_DATAS:
            return False
        for queue in known.values():
            self._put_queue(topic, queue)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic everywhere, or in one cluster's groups."""
        holders = set(self._queues.get(topic, ()))
        if cluster is not None:
            holders &= self._clusters.get(cluster, set())
        for name in holders:
            self._drop_queue(topic, name)

    def _conflicts(self, broker: Registration, now_ms: int) -> bool:
        group = self._groups.get(broker.name)
        holder = None if group is None else group.broker_addrs.get(broker.broker_id)
        if holder is None:
            return False
        live = self._live.get((broker.cluster, holder))
        if live is None or live.expired(now_ms):
            return False
        return live.data_version.state_version > broker.topics.data_version.state_version

    def _refusal(self, broker: Registration) -> str | None:
        group = self._groups.get(broker.name)
        known = group is not None and broker.broker_id in group.broker_addrs
        if not known and len(broker.topics.topic_config_table) == 1:
            # A broker that creates a topic tells it alone; first all its topics must be known.
            return "register broker failed"
        # An id that is known under another address needs a place of its own until that one ends.
        is_live = (broker.cluster, broker.address) in self._live
        if not is_live and len(self._live) >= MAX_BROKERS:
            return f"register broker failed, {MAX_BROKERS} brokers are registered"
        held = self._topics_of.get(broker.name, set())
        named = (config.topic_name for config in broker.topics.topic_config_table.values())
        if self._queue_count + sum(name not in held for name in named) > MAX_QUEUE_DATAS:
            return f"register broker failed, {MAX_QUEUE_DATAS} topics are registered"
        return None

    def _take_topics(
        self, broker: Registration, group: BrokerData, first: bool, delete_missing: bool
    ) -> None:
        """Queues come from the master, or from the lowest replica of a group of 5.x brokers."""
        is_master = broker.broker_id == MASTER_ID
        is_prime = (
            not is_master
            and broker.acting_master is not None
            and broker.broker_id == min(group.broker_addrs)
        )
        if not is_master and not is_prime:
            return
        table = broker.topics.topic_config_table
        if delete_missing and not broker.topics.topic_queue_mapping_info_map:
            named = {config.topic_name for config in table.values()}
            for topic in self._topics_of.get(broker.name, set()) - named:
                self._drop_queue(topic, broker.name)
        known = self.data_version(broker.cluster, broker.address)
        changed = first or known != broker.topics.data_version
        held = self._topics_of.get(broker.name, set())
        for config in table.values():
            if changed or config.topic_name not in held:
                wipe = is_prime and group.enable_acting_master
                self._put_queue(config.topic_name, _queue_data(broker.name, config, wipe))
        if changed:
            held = self._topics_of.get(broker.name, set())
            for topic, info in broker.topics.topic_queue_mapping_info_map.items():
                # It goes with the topic's queues; what a broker says of others would stay for ever.
                if topic in held and info.get("bname", broker.name) == broker.name:
                    self._mappings.setdefault(topic, {})[broker.name] = info

    def _take_live(self, broker: Registration, connection: Hashable, now_ms: int) -> None:
        key = (broker.cluster, broker.address)
        before = self._live.get(key)
        if before is None:
            log.info("broker %s %d %s of cluster %s registered",
                     broker.name, broker.broker_id, broker.address, broker.cluster)  # fmt: skip
        else:
            self._unbind(key, before.connection)
        self._live[key] = _Live(
            broker.name,
            broker.broker_id,
            now_ms,
            DEFAULT_TIMEOUT_MS if broker.timeout_ms is None else broker.timeout_ms,
            broker.topics.data_version,
            connection,
            broker.ha_address,
        )
        self._connections.setdefault(connection, set()).add(key)
        if broker.filter_servers:
            self._filter_servers[key] = list(broker.filter_servers)
        elif broker.filter_servers is not None:
            self._filter_servers.pop(key, None)

    def _tell_master(self, result: Registered, cluster: str, ids: dict[int, str]) -> None:
        address = ids.get(MASTER_ID)
        live = None if address is None else self._live.get((cluster, address))
        if live is not None:
            result.master_address, result.master_ha_address = address, live.ha_address

    def _unbind(self, key: BrokerKey, connection: Hashable) -> None:
        bound = self._connections.get(connection)
        if bound is not None:
            bound.discard(key)
            if not bound:
                del self._connections[connection]

    def _drop_group(self, name: str) -> None:
        del self._groups[name]
        for cluster in [key for key, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for topic in list(self._topics_of.get(name, ())):
            self._drop_queue(topic, name)

    def _set_permission(self, name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of.get(name, set())
        for topic in topics:
            queue = self._queues[topic][name]
            queue.perm = change(queue.perm)
        return len(topics)

    def _put_queue(self, topic: str, queue: QueueData) -> None:
        queues = self._queues.setdefault(topic, {})
        if queue.broker_name not in queues:
            self._queue_count += 1
            self._topics_of.setdefault(queue.broker_name, set()).add(topic)
        queues[queue.broker_name] = queue

    def _drop_queue(self, topic: str, name: str) -> None:
        queues = self._queues[topic]
        del queues[name]
        self._queue_count -= 1
        if not queues:
            del self._queues[topic]
        mappings = self._mappings.get(topic, {})
        mappings.pop(name, None)
        if not mappings:
            self._mappings.pop(topic, None)
        topics = self._topics_of[name]
        topics.discard(topic)
        if not topics:
            del self._topics_of[name]


def is_unit(flags: int) -> bool:
    """311: topics of one unit."""
    return bool(flags & UNIT_FLAG)


def has_unit_subscription(flags: int) -> bool:
    """312: topics subscribed by units."""
    return bool(flags & UNIT_SUB_FLAG)


def has_unit_subscription_only(flags: int) -> bool:
    """313: topics subscribed by units that are not of one unit themselves."""
    return has_unit_subscription(flags) and not is_unit(flags)


def _queue_data(name: str, config: TopicConfig, wipe_write: bool) -> QueueData:
    perm = config.perm & ~PERM_WRITE if wipe_write else config.perm
    return QueueData(
        name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag
    )


def _copy(group: BrokerData) -> BrokerData:
    return replace(group, broker_addrs=dict(group.broker_addrs))


def _new_lead(group: BrokerData, ha_address: str) -> Notice:
    """A lower id came: the others are told, or the only one itself."""
    ids = group.broker_addrs
    lead = min(ids)
    targets = [address for key, address in ids.items() if key != lead or len(ids) == 1]
    return Notice(targets, group.broker_name, lead, ids[lead], None, ha_address)


def _lost_lead(group: BrokerData, offline: str) -> Notice:
    ids = group.broker_addrs
    lead = min(ids)
    return Notice(list(ids.values()), group.broker_name, lead, ids[lead], offline)


def _show_acting_masters(route: TopicRouteData) -> None:
    writable = {q.broker_name for q in route.queue_datas if q.perm & PERM_WRITE}
    for group in route.broker_datas:
        ids = group.broker_addrs
        headless = MASTER_ID not in ids and group.enable_acting_master
        if headless and group.broker_name not in writable:
            ids[MASTER_ID] = ids.pop(min(ids))


def _keep_zone(route: TopicRouteData, zone: str) -> None:
    """RocketMQ: ZoneRouteRPCHook. A group without master is kept: reading from a replica anywhere
    is better than not reading."""
    gone = {
        group.broker_name: group
        for group in route.broker_datas
        if MASTER_ID in group.broker_addrs and (group.zone_name or "").lower() != zone.lower()
    }
    route.broker_datas = [g for g in route.broker_datas if g.broker_name not in gone]
    route.queue_datas = [q for q in route.queue_datas if q.broker_name not in gone]
    for group in gone.values():
        for address in group.broker_addrs.values():
            route.filter_server_table.pop(address, None)

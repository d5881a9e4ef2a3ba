"""The route table: live brokers, their topics, and the addresses for clients.

Owns all routing state of a name server (RocketMQ: RouteInfoManager). It must never read a clock, a
socket or a configuration: time, connections and switches are arguments, connections are opaque.
Messages for brokers are returned as notices. Queues of topics are in topic_queues.py.

A broker's place is its id in a group:

    free --register--> held --unregister, close of its connection, scan after its timeout--> free
    held --register of another address, state version not lower, or holder expired--> held by it
    held --register of another address with a lower state version--> unchanged, the claim ignored
"""

import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from turbopump.namesrv import topic_queues
from turbopump.namesrv.registrations import BrokerKey, BrokerRegistration, Expired, Registered
from turbopump.namesrv.route_rows import (
    Notice,
    copy_group,
    copy_queue,
    limit_to_zone,
    lost_lead,
    new_lead,
    queue_data,
    show_acting_masters,
)
from turbopump.namesrv.topic_queues import TopicQueues
from turbopump.net.wire.bodies import Steps, run_to_result, sort_in_steps
from turbopump.net.wire.names import SYNC_MEMBER_PREFIX
from turbopump.net.wire.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from turbopump.net.wire.topics import PERM_WRITE, DataVersion

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS = 120_000
"""Time in ms without a sign of life after which a broker is unregistered that sends no timeout."""


MAX_BROKERS = 10_000
"""Maximum number of registered broker addresses: a registration of 1,000 topics takes some 300 KB
here."""

MAPPINGS_PER_STEP = 100
"""Mappings of static topics that one step takes over: each is encoded to measure it."""


@dataclass(slots=True)
class _BrokerLiveInfo:
    """A registered broker: its last sign of life, timeout, data version and connection (RocketMQ:
    BrokerLiveInfo)."""

    broker_name: str
    broker_id: int
    updated_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_address: str

    def expired(self, now_ms: int) -> bool:
        """Whether the last sign of life is more than the timeout ago."""
        return self.updated_ms + self.timeout_ms < now_ms


class RouteTable(TopicQueues):
    """All routing state. Each public method, and each step, leaves the tables consistent. `now_ms`
    is a time of the monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _BrokerLiveInfo] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}
        self._connections: dict[Hashable, set[BrokerKey]] = {}

    def register(
        self,
        broker: BrokerRegistration,
        connection: Hashable,
        now_ms: int,
        *,
        delete_missing_topics: bool = False,
    ) -> Registered:
        """Register a broker, or renew it, with all its topics at once; for the arguments and the
        outcome see `register_in_steps`. `connection` is any hashable object; its close ends the
        registration."""
        return run_to_result(
            self.register_in_steps(
                broker, connection, now_ms, delete_missing_topics=delete_missing_topics
            )
        )

    def register_in_steps(
        self,
        broker: BrokerRegistration,
        connection: Hashable,
        now_ms: int,
        *,
        delete_missing_topics: bool = False,
    ) -> Steps[Registered]:
        """Register a broker, or renew it, with its topics (RocketMQ:
        RouteInfoManager.registerBroker); the registration lasts until its timeout after the last
        sign of life, or the close of `connection`.

        The topics follow in steps, unless the broker is unregistered meanwhile.
        `delete_missing_topics`: the group's topics that the registration lacks are removed. A claim
        to an id whose live holder has a higher state version gets a success response but is
        ignored, in any order of arrival; this is decided before any change. The holder's own
        registration with a lower version is late and from an earlier term: if it were accepted,
        late registrations of other brokers would pass for newer.
        """
        while True:
            refusal = yield from self._registration_refusal(broker)
            if broker.name not in self._dropped:
                break
            self._sweep_step(broker.name)
            yield
        if self._has_newer_holder(broker, now_ms):
            if self._groups[broker.name].broker_addrs[broker.broker_id] == broker.address:
                return Registered()
            logger.warning(
                "%s: claim to id %d of %s has an older state version: ignored",
                broker.address,
                broker.broker_id,
                broker.name,
            )
            # A broker that claims another id no longer serves in its old one.
            holder = self._groups[broker.name].broker_addrs[broker.broker_id]
            left = self.unregister(broker.cluster, broker.name, broker.address)
            return Registered(notices=left, holder=holder)
        if refusal is not None:
            return Registered(refusal)
        result = Registered()
        before = self._live.get((broker.cluster, broker.address))
        if before is not None and before.broker_name != broker.name:
            # The broker was renamed, and registered before its old connection closed.
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
        known = self.data_version(broker.cluster, broker.address)
        self._record_live(broker, connection, now_ms)
        changed = first or known != broker.topics.data_version
        yield from self._register_topics(broker, group, changed, delete_missing_topics)
        if broker.broker_id != MASTER_ID:
            self._set_master(result, broker.cluster, ids)
        if takes_lead:
            result.notices.append(new_lead(group, broker.ha_address))
        return result

    def unregister(
        self, cluster: str, name: str, address: str, broker_id: int | None = None
    ) -> list[Notice]:
        """Unregister the broker at `address`, and return the notices to send; without such a broker
        nothing happens. A group without addresses is removed with its topics (see `sweep`); in a
        group with acting masters and without a master the topics lose the write permission.

        `broker_id` is the id of a broker that unregisters itself. If the address now belongs to
        another id or name, nothing changes: the request comes from an earlier run at that address.
        (RocketMQ's RouteInfoManager compares the address alone.)
        """
        if broker_id is not None and self._is_of_another(cluster, name, address, broker_id):
            logger.warning(
                "%s of %s unregisters id %d, which it no longer has: ignored",
                address,
                name,
                broker_id,
            )
            return []
        live = self._live.pop((cluster, address), None)
        if live is not None:
            self._unlink_connection((cluster, address), live.connection)
            name = live.broker_name
        self._filter_servers.pop((cluster, address), None)
        group = self._groups.get(name)
        if group is None:
            return []
        ids = group.broker_addrs
        lead = min(ids)
        removed = [broker_id for broker_id, held in ids.items() if held == address]
        for broker_id in removed:
            del ids[broker_id]
        logger.info("broker %s %s of cluster %s unregistered", name, address, cluster)
        if not ids:
            self._drop_group(name)
            return []
        if not group.enable_acting_master:
            return []
        if MASTER_ID not in ids:
            for topic in self._topics_of.get(name, ()):
                self._queues[topic][name].perm &= ~PERM_WRITE
        return [lost_lead(group, address)] if lead in removed else []

    def _is_of_another(self, cluster: str, name: str, address: str, broker_id: int) -> bool:
        """Whether an address is registered, but under another name or id."""
        live = self._live.get((cluster, address))
        if live is None:
            return False
        group = self._groups.get(name)
        if live.broker_name != name or group is None:
            return True
        return group.broker_addrs.get(broker_id) != address

    def connection_closed(self, connection: Hashable) -> list[Notice]:
        """Unregister every broker whose last registration came through this connection; return the
        notices to send."""
        notices: list[Notice] = []
        for key in self._connections.pop(connection, set()):
            notices += self.unregister(key[0], self._live[key].broker_name, key[1])
        return notices

    def unregister_silent(self, now_ms: int) -> list[Expired]:
        """Unregister the brokers whose last sign of life is older than their timeout, and return
        them."""
        silent = [(key, live) for key, live in self._live.items() if live.expired(now_ms)]
        return [
            Expired(key, live.connection, self.unregister(key[0], live.broker_name, key[1]))
            for key, live in silent
        ]

    def record_heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        """Record a sign of life (904, 322) at `now_ms`; an unregistered address stays
        unregistered."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.updated_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The data version of the last registration from this address, None if it is not
        registered."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def find_route(
        self, topic: str, *, acting_master: bool = False, zone: str | None = None
    ) -> TopicRouteData | None:
        """The route of a topic, a copy that the caller may change; None if no group has it
        (RocketMQ: pickupTopicRouteData).

        With `acting_master` the lowest replica of a group without master and without write
        permission is shown as its master. With `zone` groups with a master in another zone are left
        out.
        """
        queues = self._of_existing_groups(self._queues.get(topic, {}))
        if not queues:
            return None
        groups = [copy_group(self._groups[name]) for name in queues]
        route = TopicRouteData([*map(copy_queue, queues.values())], groups)
        if self._filter_servers:
            for group in groups:
                for address in group.broker_addrs.values():
                    servers = self._filter_servers.get((group.cluster, address))
                    if servers:
                        route.filter_server_table[address] = servers
        mappings = self._mappings.get(topic, {})
        route.topic_queue_mapping_by_broker = {
            name: info for name, info in mappings.items() if name not in self._dropped
        } or None
        if acting_master and not topic.startswith(SYNC_MEMBER_PREFIX):
            show_acting_masters(route)
        if zone is not None:
            limit_to_zone(route, zone)
        return route

    def cluster_info(self) -> ClusterInfo:
        """Copies of all groups, and the sorted names of the groups in each cluster."""
        groups = {name: copy_group(group) for name, group in self._groups.items()}
        return ClusterInfo(groups, {name: sorted(names) for name, names in self._clusters.items()})

    def member_group(self, name: str) -> dict[int, str]:
        """Broker id to address of the group `name`; a copy, empty for an unknown group."""
        group = self._groups.get(name)
        return {} if group is None else dict(group.broker_addrs)

    def topics_of_cluster(self, cluster: str) -> Steps[list[str]]:
        """Return the names of the topics of a cluster's groups, sorted, without repeats; yields
        between groups with many topics."""
        topics: set[str] = set()
        for name in list(self._clusters.get(cluster, ())):
            before = len(topics)
            topics |= self._topics_of.get(name, set())
            if len(topics) - before > topic_queues.TOPICS_PER_STEP:
                yield
        return (yield from sort_in_steps(topics))

    def system_topics(self) -> tuple[list[str], str | None]:
        """(names of clusters and of their groups, which brokers create as topics; the address of
        any broker, None without brokers). The other system topics have to be requested from that
        broker."""
        names: dict[str, None] = {}
        for cluster, groups in self._clusters.items():
            names |= dict.fromkeys((cluster, *sorted(groups)))
        address = next((next(iter(g.broker_addrs.values())) for g in self._groups.values()), None)
        return list(names), address

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Set a topic's row in each broker group named in `queues` (request 217), and return True.
        Its rows in other groups stay; rows of unknown broker groups are ignored.

        Returns False, and changes nothing, if the table would exceed its limits.
        """
        known = {queue.broker_name: queue for queue in queues if queue.broker_name in self._groups}
        new = len(known.keys() - self._queues.get(topic, {}).keys())
        size = sum(self._size_of(topic) for _ in range(new))
        if not self._has_room(new, size):
            return False
        for queue in known.values():
            self._put_queue(topic, queue)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic from all groups, or from those in `cluster`; the next registration of a
        master that names the topic adds it again."""
        holders = set(self._queues.get(topic, ()))
        if cluster is not None:
            holders &= self._clusters.get(cluster, set())
        for name in holders:
            if name not in self._dropped:
                self._drop_queue(topic, name)

    def _has_newer_holder(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Whether the broker id is held by a live broker with a higher state version."""
        group = self._groups.get(broker.name)
        holder = None if group is None else group.broker_addrs.get(broker.broker_id)
        if holder is None:
            return False
        live = self._live.get((broker.cluster, holder))
        if live is None or live.expired(now_ms):
            return False
        return live.data_version.state_version > broker.topics.data_version.state_version

    def _registration_refusal(self, broker: BrokerRegistration) -> Steps[str | None]:
        """Return the remark that refuses a registration which the table's limits or an incomplete
        topic table forbid; None if it is allowed. Yields between steps."""
        if broker.name in self._dropped:
            return None  # checked again, once the queues of the dropped group are removed
        group = self._groups.get(broker.name)
        known = group is not None and broker.broker_id in group.broker_addrs
        if not known and len(broker.topics.topic_config_table) == 1:
            # A broker that creates a topic sends only that topic; its full table must come first.
            return "register broker failed"
        # A known id under a new address takes another entry until the old address is removed.
        is_live = (broker.cluster, broker.address) in self._live
        if not is_live and len(self._live) >= MAX_BROKERS:
            return f"register broker failed, {MAX_BROKERS} brokers are registered"
        held = self._topics_of.get(broker.name, set())
        count = size = 0
        for number, config in enumerate(broker.topics.topic_config_table.values(), 1):
            if config.topic_name not in held:
                count += 1
                size += self._size_of(config.topic_name)
            if number % topic_queues.TOPICS_PER_STEP == 0:
                yield
        if self._queue_count + count > topic_queues.MAX_QUEUE_DATAS:
            return f"register broker failed, {topic_queues.MAX_QUEUE_DATAS} topics are registered"
        if self.size + size > topic_queues.MAX_SIZE:
            return f"register broker failed, all topics take over {topic_queues.MAX_SIZE} bytes"
        return None

    def _register_topics(
        self, broker: BrokerRegistration, group: BrokerData, changed: bool, delete_missing: bool
    ) -> Steps[None]:
        """Add the topics of a registration to its group in steps, and with `delete_missing` remove
        the group's other topics, if the broker is the master, or the replica with the lowest id of
        a group of 5.x brokers without a master. `changed`: the data version differs from the last
        registration's."""
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
            for number, topic in enumerate(self._topics_of.get(broker.name, set()) - named, 1):
                self._drop_queue(topic, broker.name)
                if number % topic_queues.TOPICS_PER_STEP == 0:
                    yield
                    if not self._is_held(broker, group):
                        return
        for number, config in enumerate(table.values(), 1):
            if changed or config.topic_name not in self._topics_of.get(broker.name, ()):
                wipe = is_prime and group.enable_acting_master
                self._put_queue(config.topic_name, queue_data(broker.name, config, wipe))
            if number % topic_queues.TOPICS_PER_STEP == 0:
                yield
                if not self._is_held(broker, group):
                    return
        if changed:
            held = self._topics_of.get(broker.name, set())
            mappings = broker.topics.topic_queue_mapping_info_map
            for number, (topic, info) in enumerate(mappings.items(), 1):
                # A mapping is removed with the topic's queues; another broker's mapping would never
                # be removed.
                if topic in held and info.get("bname", broker.name) == broker.name:
                    self._put_mapping(topic, broker.name, info)
                if number % MAPPINGS_PER_STEP == 0:
                    yield
                    if not self._is_held(broker, group):
                        return

    def _is_held(self, broker: BrokerRegistration, group: BrokerData) -> bool:
        """Whether the broker still has the id that it registered."""
        is_there = self._groups.get(broker.name) is group
        return is_there and group.broker_addrs.get(broker.broker_id) == broker.address

    def _record_live(self, broker: BrokerRegistration, connection: Hashable, now_ms: int) -> None:
        """Record the broker's connection, timeout and version, and a sign of life at `now_ms`."""
        key = (broker.cluster, broker.address)
        before = self._live.get(key)
        if before is None:
            logger.info(
                "broker %s %d %s of cluster %s registered",
                broker.name,
                broker.broker_id,
                broker.address,
                broker.cluster,
            )
        else:
            self._unlink_connection(key, before.connection)
        self._live[key] = _BrokerLiveInfo(
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

    def _set_master(self, result: Registered, cluster: str, ids: dict[int, str]) -> None:
        """Set the master's addresses in `result`, if the group's master is registered."""
        address = ids.get(MASTER_ID)
        live = None if address is None else self._live.get((cluster, address))
        if live is not None:
            result.master_address, result.master_ha_address = address, live.ha_address

    def _unlink_connection(self, key: BrokerKey, connection: Hashable) -> None:
        """Forget that this connection belongs to a broker."""
        bound = self._connections.get(connection)
        if bound is not None:
            bound.discard(key)
            if not bound:
                del self._connections[connection]

    def _drop_group(self, name: str) -> None:
        """Remove a group from groups and clusters; `sweep` removes its queues."""
        del self._groups[name]
        for cluster in [key for key, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        topics = self._topics_of.pop(name, None)
        if topics:
            self._dropped[name] = topics

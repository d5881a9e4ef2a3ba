"""Rows of the route table: queues, groups, notices, acting masters, zones, flags.

Owns the forms of single rows and notices. It must never keep a table.

Tests: tests/unit/namesrv/test_routes.py
"""

from dataclasses import dataclass

from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.route import (
    MASTER_ID,
    BrokerData,
    QueueData,
    TopicRouteData,
)
from turbopump.net.wire.topics import PERM_WRITE, TopicConfig

UNIT_FLAG = 1
"""Bit of topicSysFlag: the topic belongs to one unit."""
UNIT_SUB_FLAG = 2
"""Bit of topicSysFlag: units subscribe to the topic."""


@dataclass(slots=True)
class Notice:
    """The content of NOTIFY_MIN_BROKER_ID_CHANGE (905) about the group `broker_name`, for the
    addresses `targets`.

    `min_broker_id` and `min_address` are of the broker with the lowest id now; `offline_address` is
    of the broker that had it and left; `ha_address` is the replication address of the broker that
    came.
    """

    targets: list[str]
    broker_name: str
    min_broker_id: int
    min_address: str
    offline_address: str | None = None
    ha_address: str | None = None


def mapping_size(info: dict[str, object]) -> int:
    """Estimate the bytes in memory of a mapping, the JSON object of a static topic: a multiple of
    its text."""
    return 20 * len(encode_json(info))


def is_unit(flags: int) -> bool:
    """Whether a topic with this topicSysFlag belongs to one unit (311)."""
    return bool(flags & UNIT_FLAG)


def has_unit_subscription(flags: int) -> bool:
    """Whether units subscribe to a topic with this topicSysFlag (312)."""
    return bool(flags & UNIT_SUB_FLAG)


def has_unit_subscription_only(flags: int) -> bool:
    """Whether units subscribe to a topic with this topicSysFlag that belongs to no unit (313)."""
    return has_unit_subscription(flags) and not is_unit(flags)


def queue_data(name: str, config: TopicConfig, wipe_write: bool) -> QueueData:
    """Build the route's row of a topic in the group `name`; with `wipe_write` without write
    permission."""
    perm = config.perm & ~PERM_WRITE if wipe_write else config.perm
    return QueueData(
        name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag
    )


def copy_group(group: BrokerData) -> BrokerData:
    """Copy a group with its addresses, so that a route may change them."""
    # `replace` would take three times as long, and there may be thousands.
    return BrokerData(
        group.cluster,
        group.broker_name,
        dict(group.broker_addrs),
        group.enable_acting_master,
        group.zone_name,
    )


def copy_queue(queue: QueueData) -> QueueData:
    """Copy a queue row, so that a route may change it."""
    return QueueData(
        queue.broker_name,
        queue.read_queue_nums,
        queue.write_queue_nums,
        queue.perm,
        queue.topic_sys_flag,
    )


def new_lead(group: BrokerData, ha_address: str) -> Notice:
    """Build the notice that the broker with the now lowest id has registered, with the replication
    address `ha_address`: for the other brokers of the group, or for itself if it is alone."""
    ids = group.broker_addrs
    lead = min(ids)
    targets = [address for key, address in ids.items() if key != lead or len(ids) == 1]
    return Notice(targets, group.broker_name, lead, ids[lead], None, ha_address)


def lost_lead(group: BrokerData, offline: str) -> Notice:
    """Build the notice that the broker with the lowest id, at address `offline`, was unregistered,
    for the remaining brokers; `group` has at least one of them."""
    ids = group.broker_addrs
    lead = min(ids)
    return Notice(list(ids.values()), group.broker_name, lead, ids[lead], offline)


def show_acting_masters(route: TopicRouteData) -> None:
    """Change `route`: show the replica with the lowest id as master (id 0) of each group without a
    master that enables acting masters and has no write permission for the topic."""
    writable = {q.broker_name for q in route.queue_datas if q.perm & PERM_WRITE}
    for group in route.broker_datas:
        ids = group.broker_addrs
        headless = MASTER_ID not in ids and group.enable_acting_master
        if headless and group.broker_name not in writable:
            ids[MASTER_ID] = ids.pop(min(ids))


def limit_to_zone(route: TopicRouteData, zone: str) -> None:
    """Change `route`: remove the groups that have a master and another zone name, compared without
    case (RocketMQ: ZoneRouteRPCHook).

    A group without master stays: reading from a replica in any zone is better than not reading.
    """
    removed = {
        group.broker_name: group
        for group in route.broker_datas
        if MASTER_ID in group.broker_addrs and (group.zone_name or "").lower() != zone.lower()
    }
    route.broker_datas = [g for g in route.broker_datas if g.broker_name not in removed]
    route.queue_datas = [q for q in route.queue_datas if q.broker_name not in removed]
    for group in removed.values():
        for address in group.broker_addrs.values():
            route.filter_server_table.pop(address, None)

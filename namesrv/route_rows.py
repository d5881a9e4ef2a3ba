"""What the route table shows of its brokers: rows, notices, acting masters, zones, flags.

Owns the forms of single rows and notices. It must never keep a table. Called by routes.py and by
the handlers.
"""

from dataclasses import dataclass

from turbopump.net.wire.bodies import dump
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.net.wire.topics import PERM_WRITE, TopicConfig

MASTER_ID = 0
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


@dataclass(slots=True)
class Notice:
    """The smallest broker id of a group changed; `targets` are the addresses to tell (905)."""

    targets: list[str]
    broker_name: str
    min_broker_id: int
    min_address: str
    offline_address: str | None = None
    ha_address: str | None = None


def mapping_size(info: dict[str, object]) -> int:
    """Bytes of a mapping's objects, a multiple of its text's."""
    return 20 * len(dump(info))


def is_unit(flags: int) -> bool:
    """311: topics of one unit."""
    return bool(flags & UNIT_FLAG)


def has_unit_subscription(flags: int) -> bool:
    """312: topics subscribed by units."""
    return bool(flags & UNIT_SUB_FLAG)


def has_unit_subscription_only(flags: int) -> bool:
    """313: topics subscribed by units that are not of one unit themselves."""
    return has_unit_subscription(flags) and not is_unit(flags)


def queue_data(name: str, config: TopicConfig, wipe_write: bool) -> QueueData:
    """See the module."""
    perm = config.perm & ~PERM_WRITE if wipe_write else config.perm
    return QueueData(
        name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag
    )


def copy(group: BrokerData) -> BrokerData:
    """See the module."""
    # Not `replace`: it takes three times as long, and there may be thousands.
    return BrokerData(
        group.cluster,
        group.broker_name,
        dict(group.broker_addrs),
        group.enable_acting_master,
        group.zone_name,
    )


def copy_queue(queue: QueueData) -> QueueData:
    """A row that may be changed."""
    return QueueData(
        queue.broker_name,
        queue.read_queue_nums,
        queue.write_queue_nums,
        queue.perm,
        queue.topic_sys_flag,
    )


def new_lead(group: BrokerData, ha_address: str) -> Notice:
    """A lower id came: the others are notified, or the only one itself."""
    ids = group.broker_addrs
    lead = min(ids)
    targets = [address for key, address in ids.items() if key != lead or len(ids) == 1]
    return Notice(targets, group.broker_name, lead, ids[lead], None, ha_address)


def lost_lead(group: BrokerData, offline: str) -> Notice:
    """See the module."""
    ids = group.broker_addrs
    lead = min(ids)
    return Notice(list(ids.values()), group.broker_name, lead, ids[lead], offline)


def show_acting_masters(route: TopicRouteData) -> None:
    """See the module."""
    writable = {q.broker_name for q in route.queue_datas if q.perm & PERM_WRITE}
    for group in route.broker_datas:
        ids = group.broker_addrs
        headless = MASTER_ID not in ids and group.enable_acting_master
        if headless and group.broker_name not in writable:
            ids[MASTER_ID] = ids.pop(min(ids))


def keep_zone(route: TopicRouteData, zone: str) -> None:
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

"""Routes and cluster tables: the brokers and queues of topics.

Owns RocketMQ's TopicRouteData, BrokerData, QueueData and ClusterInfo. It must never cache or merge
them. Bodies are strict compact JSON with quoted broker ids: every client can read that, and some
can read nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.engine.json_steps import Lazy, LazyItems
from turbopump.engine.types import Buffer
from turbopump.net.wire.bodies import (
    Steps,
    as_int,
    as_object,
    as_text,
    encode_json,
    items_in_steps,
    load_object,
    optional_text,
    read_flag,
    read_int32,
    read_list,
    read_table,
    read_text,
    run_to_result,
    table_in_steps,
)

MASTER_ID: Final = 0
"""The broker id of a master (MixAll.MASTER_ID)."""
QUEUES_MAX: Final = 65_536
"""Maximum number of queues of a topic: a damaged route must not fill the memory."""


@dataclass(slots=True)
class BrokerData:
    """A broker group: `broker_addrs` is broker id (0: the master) to "host:port". With
    `enable_acting_master` the name server may list a replica as master for reads."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> "BrokerData":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        addresses = read_table(members, "brokerAddrs", as_text)
        return cls(
            cluster=read_text(members, "cluster"),
            broker_name=read_text(members, "brokerName"),
            broker_addrs={as_int(key, "broker id"): value for key, value in addresses.items()},
            enable_acting_master=read_flag(members, "enableActingMaster"),
            zone_name=optional_text(members, "zoneName"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "brokerAddrs": {str(key): value for key, value in sorted(self.broker_addrs.items())},
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
            "zoneName": self.zone_name,
        }


@dataclass(slots=True)
class QueueData:
    """Numbers of a topic's queues on a broker group, whose ids are 0 to number - 1, and `perm`, the
    PERM_ bits of topics.py for them."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @classmethod
    def from_json(cls, value: Any) -> "QueueData":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        members = as_object(value)
        return cls(
            broker_name=read_text(members, "brokerName"),
            read_queue_nums=read_int32(members, "readQueueNums"),
            write_queue_nums=read_int32(members, "writeQueueNums"),
            perm=read_int32(members, "perm"),
            topic_sys_flag=read_int32(members, "topicSysFlag"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


def bounded_queue_counts(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Bound the numbers of queues that a peer sent, given as (broker name, number), and keep their
    order: a negative number is 0, and if all together exceed QUEUES_MAX, the largest numbers are
    lowered, so that a wrong number of a broker takes no queue of the others. All code that makes
    queues of a route calls this function."""
    found = [(name, max(count, 0)) for name, count in counts]
    left = QUEUES_MAX
    if sum(count for _, count in found) <= left:
        return found
    ascending = sorted(range(len(found)), key=lambda place: found[place][1])
    for rank, place in enumerate(ascending):
        name, count = found[place]
        count = min(count, left // (len(found) - rank))
        found[place] = (name, count)
        left -= count
    return found


@dataclass(slots=True)
class TopicRouteData:
    """The route of a topic: the queues and the addresses of each broker group with it, in the name
    server's order; `order_topic_conf` is `broker:queues;...` for ordered topics, else None."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, Any] | None = None

    @classmethod
    def decode(cls, body: Buffer) -> "TopicRouteData":
        """Decode the body of GET_ROUTEINFO_BY_TOPIC; raises BadBody."""
        return cls.from_json(load_object(body))

    @classmethod
    def from_json(cls, value: Any) -> "TopicRouteData":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        return run_to_result(cls.from_json_in_steps(value))

    @classmethod
    def from_json_in_steps(cls, value: Any) -> Steps["TopicRouteData"]:
        """Convert like `from_json`, in steps. Raises BadBody."""
        members = as_object(value)
        mapping = members.get("topicQueueMappingByBroker")
        return cls(
            queue_datas=(yield from items_in_steps(members, "queueDatas", QueueData.from_json)),
            broker_datas=(yield from items_in_steps(members, "brokerDatas", BrokerData.from_json)),
            order_topic_conf=optional_text(members, "orderTopicConf"),
            filter_server_table=(
                yield from table_in_steps(members, "filterServerTable", _read_texts)
            ),
            topic_queue_mapping_by_broker=None if mapping is None else as_object(mapping),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "brokerDatas": [data.to_json() for data in self.broker_datas],
            "filterServerTable": self.filter_server_table,
            "orderTopicConf": self.order_topic_conf,
            "queueDatas": [data.to_json() for data in self.queue_datas],
            "topicQueueMappingByBroker": self.topic_queue_mapping_by_broker,
        }

    def encode(self) -> bytes:
        """Encode the JSON bean as a body, at once and without any blank: the Go client scans the
        text by hand."""
        return encode_json(self.to_json())

    def to_lazy_json(self) -> dict[str, Any]:
        """Convert like `to_json` for `dump_in_steps`, which converts the parts as it encodes them:
        they must not change until then."""
        return {
            "brokerDatas": LazyItems(self.broker_datas, BrokerData.to_json),
            "filterServerTable": self.filter_server_table,
            "orderTopicConf": self.order_topic_conf,
            "queueDatas": LazyItems(self.queue_datas, QueueData.to_json),
            "topicQueueMappingByBroker": self.topic_queue_mapping_by_broker,
        }


@dataclass(slots=True)
class ClusterInfo:
    """All broker groups by name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: Buffer) -> "ClusterInfo":
        """Decode the body of GET_BROKER_CLUSTER_INFO; raises BadBody."""
        return cls.from_json(load_object(body))

    @classmethod
    def from_json(cls, value: Any) -> "ClusterInfo":
        """Convert a parsed JSON object with RocketMQ's member names; null and missing members are
        empty, 0 or the default. Raises BadBody for another shape."""
        return run_to_result(cls.from_json_in_steps(value))

    @classmethod
    def from_json_in_steps(cls, value: Any) -> Steps["ClusterInfo"]:
        """Convert like `from_json`, in steps. Raises BadBody."""
        members = as_object(value)
        return cls(
            (yield from table_in_steps(members, "brokerAddrTable", BrokerData.from_json)),
            (yield from table_in_steps(members, "clusterAddrTable", _read_texts)),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        brokers = self.broker_addr_table
        return {
            "brokerAddrTable": {name: data.to_json() for name, data in brokers.items()},
            "clusterAddrTable": {
                name: sorted(names) for name, names in self.cluster_addr_table.items()
            },
        }

    def encode(self) -> bytes:
        """Encode `to_json` as a compact JSON body in UTF-8, at once."""
        return encode_json(self.to_json())

    def to_lazy_json(self) -> dict[str, Any]:
        """Convert like `to_json` for `dump_in_steps`, which converts the parts as it encodes them:
        they must not change until then."""
        return {
            "brokerAddrTable": Lazy(self.broker_addr_table, BrokerData.to_json),
            "clusterAddrTable": Lazy(self.cluster_addr_table, sorted),
        }


def _read_texts(value: Any) -> list[str]:
    """Convert a JSON list to texts; null is empty. Raises BadBody."""
    return read_list({"element": value}, "element", as_text)

"""A route as a client uses it: the queues to send to, the queues to read, the addresses.

Owns the reading of TopicRouteData (MQClientInstance.topicRouteData2TopicPublishInfo and
topicRouteData2TopicSubscribeInfo) and the table of broker addresses. It must never ask a name
server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turbopump.net.allocation.shares import queues_of, readable_counts
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import (
    MASTER_ID,
    TopicRouteData,
)
from turbopump.net.wire.topics import PERM_WRITE


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of a topic.

    `publish` are the queues that can be sent to (writable, with a master), `subscribe` the queues
    that can be read, both sorted by broker name and queue id; `brokers` maps broker name to broker
    id (0: master) to "host:port". `ordered`: `publish` is from the topic's order configuration. A
    `provisional` route is that of TBW102 for a topic that does not exist yet: sending creates it,
    nothing can be read.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    ordered: bool = False
    provisional: bool = False


def read_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Extract the route of `topic` from a name server's answer. If it has an order configuration,
    that alone decides the queues to send to; otherwise they need write permission and a master."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    subscribe = queues_of(topic, readable_counts(data))
    ordered = bool(data.order_topic_conf)
    if ordered:
        publish = queues_of(topic, _ordered_queues(data.order_topic_conf or ""))
    else:
        publish = queues_of(
            topic,
            (
                (queues.broker_name, queues.write_queue_nums)
                for queues in data.queue_datas
                if queues.perm & PERM_WRITE and MASTER_ID in brokers.get(queues.broker_name, {})
            ),
        )
    return TopicRoute(topic, publish, subscribe, brokers, ordered)


def provisional_route(topic: str, template: TopicRoute, queues_max: int) -> TopicRoute:
    """A route for a topic that the first message will create: the queues to send to of `template`
    (TBW102's route) with ids below `queues_max`, and no queue to read."""
    publish = tuple(
        MessageQueue(topic, queue.broker_name, queue.queue_id)
        for queue in template.publish
        if queue.queue_id < queues_max
    )
    return TopicRoute(topic, publish, (), template.brokers, provisional=True)


class BrokerTable:
    """The addresses "host:port" of all broker groups on any known route, by broker name and broker
    id (0: master); the newest route decides."""

    def __init__(self) -> None:
        self._brokers: dict[str, Mapping[int, str]] = {}

    def update_addresses(self, route: TopicRoute) -> None:
        """Replace the addresses of every broker group that the route lists with an address; other
        groups stay as they are."""
        for name, addresses in route.brokers.items():
            if addresses:
                self._brokers[name] = addresses

    def retain_only(self, names: Iterable[str]) -> None:
        """Forget every broker group that is not in `names`, the groups of the known routes."""
        known = set(names)
        for name in [name for name in self._brokers if name not in known]:
            del self._brokers[name]

    def master_address(self, broker_name: str) -> str | None:
        """The master's "host:port", for sends and commits; None if the group is unknown or has no
        master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address_to_read(
        self, broker_name: str, broker_id: int = MASTER_ID
    ) -> tuple[int, str] | None:
        """(broker id, "host:port") to read from: of `broker_id`, else of the lowest broker id (0:
        the master); None if the group is unknown."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        chosen = broker_id if broker_id in addresses else min(addresses)
        return chosen, addresses[chosen]

    def addresses(self, *, masters_only: bool) -> list[str]:
        """The distinct "host:port" of all brokers, or of masters only, sorted as texts."""
        return sorted(
            {
                address
                for addresses in self._brokers.values()
                for broker_id, address in addresses.items()
                if broker_id == MASTER_ID or not masters_only
            }
        )


def _ordered_queues(text: str) -> list[tuple[str, int]]:
    """Parse `broker:queues;broker:queues` to (broker name, number of queues); items that cannot
    be parsed are left out."""
    pairs = []
    for item in text.split(";"):
        name, colon, count = item.strip().rpartition(":")
        if colon and name and count.isascii() and count.isdigit():
            pairs.append((name, int(count[:6])))
    return pairs

"""Routes as clients read them: queues for sends, queues for pulls, addresses of brokers."""

from turbopump.net.client.routes import BrokerTable, provisional_route, read_route
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def data(*queues: QueueData, order: str | None = None, **brokers: dict[int, str]) -> TopicRouteData:
    datas = [BrokerData("C", name, addresses) for name, addresses in brokers.items()]
    return TopicRouteData(list(queues), datas, order)


def test_queues_are_sorted_and_counted_apart_for_reading_and_writing() -> None:
    route = read_route(
        "T",
        data(QueueData("b", 1, 2, 6), QueueData("a", 3, 1, 6), a={0: "a:1"}, b={0: "b:1"}),
    )
    assert names(route.publish) == ["a0", "b0", "b1"]
    assert names(route.subscribe) == ["a0", "a1", "a2", "b0"]
    assert not route.ordered and not route.provisional


def test_permission_and_a_missing_master_decide() -> None:
    route = read_route(
        "T",
        data(
            QueueData("readonly", 1, 1, 4),
            QueueData("writeonly", 1, 1, 2),
            QueueData("slaves", 1, 1, 6),
            QueueData("unknown", 1, 1, 6),
            readonly={0: "r:1"},
            writeonly={0: "w:1"},
            slaves={1: "s:1"},
        ),
    )
    assert names(route.publish) == ["writeonly0"]
    assert names(route.subscribe) == ["readonly0", "slaves0"]


def test_ordered_topic_is_published_as_its_configuration_says() -> None:
    route = read_route("T", data(QueueData("a", 8, 8, 6), order="a:2;b:1;bad;c:", a={0: "a:1"}))
    assert route.ordered
    assert names(route.publish) == ["a0", "a1", "b0"]


def test_topic_to_be_created_takes_fewer_queues_and_cannot_be_read() -> None:
    template = read_route("TBW102", data(QueueData("a", 8, 8, 7), a={0: "a:1"}))
    route = provisional_route("New", template, 4)
    assert [queue.topic for queue in route.publish] == ["New"] * 4
    assert route.subscribe == () and route.provisional


def test_damaged_route_is_bounded() -> None:
    route = read_route("T", data(QueueData("a", 1 << 40, 1 << 40, 6), a={0: "a:1"}))
    assert len(route.publish) == len(route.subscribe) == 65_536


def test_newest_route_decides_where_a_broker_is() -> None:
    table = BrokerTable()
    table.update_addresses(read_route("T", data(a={0: "a:1", 1: "a:2"}, b={1: "b:2"})))
    table.update_addresses(read_route("U", data(a={0: "a:9", 1: "a:2"})))
    assert table.master_address("a") == "a:9" and table.master_address("b") is None
    assert table.address_to_read("a", 1) == (1, "a:2")
    assert table.address_to_read("a", 7) == (0, "a:9")
    assert table.address_to_read("b") == (1, "b:2")
    assert table.address_to_read("c") is None
    assert table.addresses(masters_only=True) == ["a:9"]
    assert table.addresses(masters_only=False) == ["a:2", "a:9", "b:2"]
    table.retain_only(["a"])
    assert table.address_to_read("b") is None


def test_route_without_addresses_does_not_make_a_broker_unknown() -> None:
    table = BrokerTable()
    table.update_addresses(read_route("T", data(a={0: "a:1"})))
    table.update_addresses(read_route("T", data(a={})))
    assert table.master_address("a") == "a:1"

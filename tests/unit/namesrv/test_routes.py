"""The rules of remoting.md 8 (RouteInfoManager), each with a test, and rules added after bug
reports."""

from typing import Any

import pytest

from turbopump.namesrv import routes as module
from turbopump.namesrv import topic_queues
from turbopump.namesrv.registrations import BrokerRegistration, Registered
from turbopump.namesrv.route_rows import (
    Notice,
    has_unit_subscription,
    has_unit_subscription_only,
    is_unit,
)
from turbopump.namesrv.routes import DEFAULT_TIMEOUT_MS, RouteTable
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.route import QueueData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

NOW = 1_000_000
MASTER = "10.0.0.1:10911"
REPLICA = "10.0.0.2:10911"


def topics(
    *names: str, state: int = 0, counter: int = 0, perm: int = 6, flag: int = 0
) -> TopicConfigs:
    table = {
        name: TopicConfig(name, 4, 8, perm, topic_sys_flag=flag) for name in names or ("T", "U")
    }
    return TopicConfigs(DataVersion(counter, state, 0), table)


def broker(
    address: str = MASTER,
    broker_id: int = 0,
    *,
    name: str = "a",
    cluster: str = "c",
    configs: TopicConfigs | None = None,
    **more: Any,
) -> BrokerRegistration:
    more.setdefault("acting_master", False)
    return BrokerRegistration(
        cluster, name, broker_id, address, configs or topics(), f"ha-of-{address}", **more
    )


def table_with(*brokers: BrokerRegistration) -> RouteTable:
    table = RouteTable()
    for one in brokers:
        assert table.register(one, f"to {one.address}", NOW).refusal is None
    return table


def perms(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.find_route(topic)
    return {} if route is None else {q.broker_name: q.perm for q in route.queue_datas}


def test_a_registered_broker_has_a_route() -> None:
    route = table_with(broker(zone="z1")).find_route("T")
    assert route is not None
    assert route.queue_datas == [QueueData("a", 4, 8, 6)]
    (data,) = route.broker_datas
    assert (data.cluster, data.broker_name, data.broker_addrs) == ("c", "a", {0: MASTER})
    assert (data.enable_acting_master, data.zone_name) == (False, "z1")
    assert route.filter_server_table == {}


def test_an_unknown_topic_has_no_route() -> None:
    assert table_with(broker()).find_route("X") is None


def test_a_replica_learns_its_live_master() -> None:
    table = table_with(broker())
    done = table.register(broker(REPLICA, 1), "r", NOW)
    assert (done.master_address, done.master_ha_address) == (MASTER, f"ha-of-{MASTER}")
    assert table.register(broker(), "m", NOW) == Registered()


def test_a_replica_of_an_absent_master_learns_nothing() -> None:
    assert RouteTable().register(broker(REPLICA, 1), "r", NOW).master_address is None


def test_an_address_has_one_id_only() -> None:
    table = table_with(broker(), broker(REPLICA, 1))
    table.unregister("c", "a", MASTER)
    table.register(broker(REPLICA, 0), "r", NOW)
    assert table.member_group("a") == {0: REPLICA}


def test_a_claim_with_an_older_state_version_is_ignored() -> None:
    table = table_with(broker(configs=topics(state=5)), broker(REPLICA, 1))
    late = broker(REPLICA, 0, configs=topics("Late", "Later", state=4))
    assert table.register(late, "late", NOW) == Registered(holder=MASTER)
    assert table.member_group("a") == {0: MASTER}
    assert table.find_route("Late") is None
    assert table.data_version("c", REPLICA) is None


def test_a_refused_claimant_leaves_its_old_place() -> None:
    table = table_with(broker(configs=topics(state=5)), broker(REPLICA, 1), broker("x:1", name="b"))
    table.register(broker("x:1", 0, configs=topics(state=4)), "late", NOW)
    assert table.member_group("b") == {}
    table.register(broker(REPLICA, 0, configs=topics(state=4)), "late", NOW)
    assert table.member_group("a") == {0: MASTER}
    table.unregister_silent(NOW + 10 * DEFAULT_TIMEOUT_MS)
    assert table.topics() == []


def test_the_higher_state_version_wins_in_any_order() -> None:
    """Regression R28: the last registration replaced the route, whatever its epoch."""
    old = broker(MASTER, configs=topics(state=1))
    new = broker(REPLICA, configs=topics(state=2))
    for order in ([old, new], [new, old], [old, new, old], [new, old, old]):
        assert table_with(*order).member_group("a") == {0: REPLICA}


def test_a_joiner_with_the_default_id_does_not_take_the_route() -> None:
    """Regression R32: a broker registered as master before its role was known."""
    table = table_with(broker(configs=topics(state=3)))
    table.register(broker(REPLICA, 0, configs=topics(state=0)), "joiner", NOW)
    route = table.find_route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: MASTER}


def test_a_late_registration_of_an_earlier_term_changes_nothing() -> None:
    """Otherwise a late one of a different master would count as newer (group seed 348)."""
    table = table_with(broker(configs=topics(state=4)))
    assert table.register(broker(configs=topics("X", state=2)), "late", NOW) == Registered()
    assert table.data_version("c", MASTER) == DataVersion(0, 4, 0)
    assert table.find_route("X") is None
    table.register(broker(REPLICA, configs=topics(state=3)), "later", NOW)
    route = table.find_route("T")
    assert route is not None and route.broker_datas[0].broker_addrs == {0: MASTER}


def test_an_expired_holder_blocks_no_registration() -> None:
    table = table_with(broker(configs=topics(state=5), timeout_ms=100))
    table.register(broker(REPLICA, 0, configs=topics(state=1)), "r", NOW + 101)
    assert table.member_group("a") == {0: REPLICA}


def test_a_single_topic_before_the_first_full_registration_is_refused() -> None:
    table = RouteTable()
    done = table.register(broker(configs=topics("T")), "m", NOW)
    assert done.refusal == "register broker failed"
    assert table.cluster_info().to_json() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert table.register(broker(), "m", NOW).refusal is None
    assert table.register(broker(configs=topics("New", counter=1)), "m", NOW).refusal is None
    assert table.topics() == ["T", "U", "New"]


def test_a_registration_without_topics_is_taken() -> None:
    table = RouteTable()
    empty = broker(configs=TopicConfigs())
    assert table.register(empty, "m", NOW).refusal is None
    assert table.member_group("a") == {0: MASTER}


def test_topics_are_updated_only_with_a_new_version() -> None:
    table = table_with(broker())
    table.register(broker(configs=topics("T", "U", perm=4)), "m", NOW)
    assert perms(table, "T") == {"a": 6}
    table.register(broker(configs=topics("T", "U", perm=4, counter=1)), "m", NOW)
    assert perms(table, "T") == {"a": 4}


def test_a_missing_topic_is_added_whatever_the_version() -> None:
    table = table_with(broker())
    table.register(broker(configs=topics("T", "U", "V")), "m", NOW)
    assert perms(table, "V") == {"a": 6}


def test_topics_of_replicas_count_only_from_the_prime_one() -> None:
    table = table_with(broker(), broker(REPLICA, 2, configs=topics("Two", "Too")))
    assert table.topics() == ["T", "U"]
    table.unregister("c", "a", MASTER)
    assert table.topics() == ["T", "U"]
    table.register(broker(REPLICA, 2, configs=topics("Two", "Too", counter=1)), "r", NOW)
    assert table.topics() == ["T", "U", "Two", "Too"]


def test_topics_of_an_old_brokers_replica_never_count() -> None:
    table = table_with(broker(REPLICA, 1, acting_master=None))
    assert table.topics() == []


def test_the_prime_replica_of_an_acting_master_group_may_not_be_written() -> None:
    table = table_with(broker(REPLICA, 1, acting_master=True))
    assert perms(table, "T") == {"a": 4}
    assert perms(table_with(broker(REPLICA, 1)), "T") == {"a": 6}


def test_vanished_topics_are_kept_unless_told_otherwise() -> None:
    table = table_with(broker())
    table.register(broker(configs=topics("T", "V", counter=1)), "m", NOW)
    assert table.topics() == ["T", "U", "V"]
    table.register(
        broker(configs=topics("T", "V", counter=2)), "m", NOW, delete_missing_topics=True
    )
    assert table.topics() == ["T", "V"]


def test_topics_with_static_mappings_are_never_deleted_by_absence() -> None:
    table = table_with(broker())
    configs = topics("V", "W", counter=1)
    configs.topic_queue_mapping_info_map = {"V": {"topic": "V", "bname": "a"}}
    table.register(broker(configs=configs), "m", NOW, delete_missing_topics=True)
    assert table.topics() == ["T", "U", "V", "W"]
    route = table.find_route("V")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": {"topic": "V", "bname": "a"}}
    table.unregister("c", "a", MASTER)
    assert table.find_route("V") is None


@pytest.mark.parametrize(("given", "expected"), [(None, DEFAULT_TIMEOUT_MS), (3_000, 3_000)])
def test_a_silent_broker_expires(given: int | None, expected: int) -> None:
    table = table_with(broker(timeout_ms=given))
    assert table.unregister_silent(NOW + expected) == []
    (expired,) = table.unregister_silent(NOW + expected + 1)
    assert (expired.key, expired.connection) == (("c", MASTER), f"to {MASTER}")
    assert table.find_route("T") is None
    assert table.topics() == []
    assert table.cluster_info().cluster_addr_table == {}


def test_a_sign_of_life_postpones_the_end() -> None:
    table = table_with(broker(timeout_ms=100))
    table.record_heartbeat("c", MASTER, NOW + 90)
    table.record_heartbeat("c", "unknown:1", NOW)
    assert table.unregister_silent(NOW + 190) == []
    assert len(table.unregister_silent(NOW + 191)) == 1


def test_a_closed_connection_takes_its_brokers() -> None:
    table = RouteTable()
    table.register(broker(), "one", NOW)
    table.register(broker("10.0.0.9:1", name="b"), "one", NOW)
    table.register(broker("10.0.0.8:1", name="d"), "two", NOW)
    table.connection_closed("one")
    assert table.cluster_info().cluster_addr_table == {"c": ["d"]}
    table.connection_closed("one")
    assert list(table.cluster_info().broker_addr_table) == ["d"]


def test_an_older_connection_closing_means_nothing() -> None:
    table = RouteTable()
    table.register(broker(), "first", NOW)
    table.register(broker(), "second", NOW)
    table.connection_closed("first")
    assert table.member_group("a") == {0: MASTER}
    table.connection_closed("second")
    assert table.member_group("a") == {}


def test_a_renamed_broker_leaves_its_old_name() -> None:
    table = table_with(broker(), broker(name="b"))
    assert table.cluster_info().cluster_addr_table == {"c": ["b"]}
    table.unregister("c", "a", MASTER)
    assert table.cluster_info().cluster_addr_table == {}


def test_unregistering_a_stranger_changes_nothing() -> None:
    table = table_with(broker())
    assert table.unregister("c", "a", "10.9.9.9:1") == []
    assert table.unregister("c", "nobody", "10.9.9.9:1") == []
    assert table.member_group("a") == {0: MASTER}


def test_a_late_request_of_an_earlier_id_leaves_the_broker_of_today() -> None:
    """A replica that became master at the same address must not be removed by a request for its old
    id."""
    table = table_with(broker(REPLICA, 1), broker(REPLICA, 0))
    assert table.unregister("c", "a", REPLICA, 1) == []
    assert table.member_group("a") == {0: REPLICA}
    assert table.unregister("c", "former", REPLICA, 0) == []
    assert table.member_group("a") == {0: REPLICA}
    table.unregister("c", "a", REPLICA, 0)
    assert table.member_group("a") == {}


def test_a_group_without_master_loses_write_permission() -> None:
    table = table_with(broker(acting_master=True), broker(REPLICA, 1, acting_master=True))
    table.unregister("c", "a", MASTER)
    assert perms(table, "T") == {"a": 4}
    plain = table_with(broker(), broker(REPLICA, 1))
    plain.unregister("c", "a", MASTER)
    assert perms(plain, "T") == {"a": 6}


def test_the_lowest_replica_is_shown_as_master_where_wanted() -> None:
    table = table_with(
        broker(acting_master=True),
        broker(REPLICA, 2, acting_master=True),
        broker("10.0.0.3:1", 1, acting_master=True),
    )
    table.unregister("c", "a", MASTER)
    for wanted, shown in ((True, 0), (False, 1)):
        expected = {shown: "10.0.0.3:1", 2: REPLICA}
        route = table.find_route("T", acting_master=wanted)
        assert route is not None
        assert route.broker_datas[0].broker_addrs == expected
    assert table.member_group("a") == {1: "10.0.0.3:1", 2: REPLICA}


def test_a_writable_group_without_master_is_shown_as_it_is() -> None:
    table = table_with(broker(REPLICA, 1, acting_master=True))
    run_to_result(table.add_write_permission("a"))
    route = table.find_route("T", acting_master=True)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: REPLICA}


def test_a_groups_own_topic_shows_true_ids() -> None:
    name = "rmq_sys_SYNC_BROKER_MEMBER_a"
    table = table_with(broker(REPLICA, 1, acting_master=True, configs=topics(name, "T")))
    route = table.find_route(name, acting_master=True)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: REPLICA}


def test_a_zone_leaves_out_masters_elsewhere() -> None:
    table = table_with(
        broker(zone="Z1", filter_servers=["f1"]),
        broker("10.0.0.2:1", name="b", zone="z2", filter_servers=["f2"]),
        broker("10.0.0.3:1", 1, name="d", zone="z3"),
    )
    route = table.find_route("T", zone="z1")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["a", "d"]
    assert [queue.broker_name for queue in route.queue_datas] == ["a", "d"]
    assert route.filter_server_table == {MASTER: ["f1"]}


def test_filter_servers_follow_the_registration() -> None:
    table = table_with(broker(filter_servers=["f1", "f2"]))
    route = table.find_route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ["f1", "f2"]}
    table.register(broker(filter_servers=[]), "m", NOW)
    route = table.find_route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_routes_are_copies() -> None:
    table = table_with(broker())
    route = table.find_route("T")
    assert route is not None
    route.queue_datas[0].perm = 0
    route.broker_datas[0].broker_addrs.clear()
    assert perms(table, "T") == {"a": 6}
    assert table.member_group("a") == {0: MASTER}


def test_write_permission_is_wiped_and_added() -> None:
    table = table_with(broker(configs=topics("T", "U", "V", perm=7)), broker("b:1", name="b"))
    assert run_to_result(table.wipe_write_permission("a")) == 3
    assert perms(table, "T") == {"a": 5, "b": 6}
    assert run_to_result(table.add_write_permission("a")) == 3
    assert perms(table, "T") == {"a": 6, "b": 6}
    assert run_to_result(table.wipe_write_permission("nobody")) == 0


def test_topics_are_listed_by_cluster() -> None:
    table = table_with(
        broker(configs=topics("T", "U")),
        broker("b:1", name="b", configs=topics("U", "V")),
        broker("x:1", name="x", cluster="other", configs=topics("X", "Y")),
    )
    assert run_to_result(table.topics_of_cluster("c")) == ["T", "U", "V"]
    assert run_to_result(table.topics_of_cluster("unknown")) == []
    assert table.topics() == ["T", "U", "V", "X", "Y"]
    assert table.system_topics() == (["c", "a", "b", "other", "x"], MASTER)


def test_no_broker_no_system_topics() -> None:
    assert RouteTable().system_topics() == ([], None)


def test_topics_are_listed_by_flag() -> None:
    table = RouteTable()
    for flag in range(4):
        configs = topics(f"T{flag}", f"U{flag}", flag=flag)
        table.register(broker(f"h{flag}:1", name=f"b{flag}", configs=configs), flag, NOW)
    assert run_to_result(table.topics_with_flag(is_unit)) == ["T1", "U1", "T3", "U3"]
    assert run_to_result(table.topics_with_flag(has_unit_subscription)) == ["T2", "U2", "T3", "U3"]
    assert run_to_result(table.topics_with_flag(has_unit_subscription_only)) == ["T2", "U2"]


def test_a_topic_is_deleted_everywhere_or_in_a_cluster() -> None:
    table = table_with(broker(), broker("x:1", name="x", cluster="other"))
    table.delete_topic("T", "other")
    assert perms(table, "T") == {"a": 6}
    table.delete_topic("T", "unknown")
    assert perms(table, "T") == {"a": 6}
    table.delete_topic("U")
    assert table.topics() == ["T"]
    table.delete_topic("never")


def test_a_topic_by_hand_takes_known_brokers_only() -> None:
    table = table_with(broker())
    table.add_topic("New", [QueueData("a", 1, 1, 6), QueueData("stranger", 1, 1, 6)])
    assert perms(table, "New") == {"a": 6}
    table.add_topic("None", [QueueData("stranger", 1, 1, 6)])
    assert table.find_route("None") is None
    table.unregister("c", "a", MASTER)
    assert table.topics() == []


def test_data_versions_are_known_while_alive() -> None:
    table = table_with(broker(configs=topics(counter=7)))
    assert table.data_version("c", MASTER) == DataVersion(7)
    assert table.data_version("other", MASTER) is None


def test_the_others_are_told_of_a_new_lowest_id() -> None:
    table = table_with(broker(REPLICA, 2, acting_master=True))
    done = table.register(broker(MASTER, 0, acting_master=True), "m", NOW)
    assert done.notices == [Notice([REPLICA], "a", 0, MASTER, None, f"ha-of-{MASTER}")]
    assert table.register(broker(MASTER, 0, acting_master=True), "m", NOW).notices == []


def test_the_rest_is_told_of_a_lost_lowest_id() -> None:
    table = table_with(
        broker(acting_master=True),
        broker(REPLICA, 1, acting_master=True),
        broker("third:1", 2, acting_master=True),
    )
    assert table.unregister("c", "a", "third:1") == []
    table.register(broker("third:1", 2, acting_master=True), "t", NOW)
    assert table.connection_closed(f"to {MASTER}") == [
        Notice([REPLICA, "third:1"], "a", 1, REPLICA, MASTER)
    ]


def test_a_group_without_acting_master_is_told_nothing() -> None:
    table = table_with(broker(), broker(REPLICA, 1))
    assert table.unregister("c", "a", MASTER) == []


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BROKERS", 2)
    monkeypatch.setattr(topic_queues, "MAX_QUEUE_DATAS", 6)
    table = table_with(broker(), broker("b:1", name="b"))
    refusal = table.register(broker("d:1", name="d"), "d", NOW).refusal
    assert refusal == "register broker failed, 2 brokers are registered"
    many = broker(configs=topics("1", "2", "3", counter=1))
    assert table.register(many, "m", NOW).refusal == (
        "register broker failed, 6 topics are registered"
    )
    assert table.register(broker(), "m", NOW).refusal is None
    assert sorted(table.cluster_info().broker_addr_table) == ["a", "b"]
    both = [QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 6)]
    assert table.add_topic("V", [*both, *nobody(9)])
    assert not table.add_topic("W", both)
    assert table.topics() == ["T", "U", "V"]


def nobody(count: int) -> list[QueueData]:
    return [QueueData(f"unknown {number}", 1, 1, 6) for number in range(count)]


def test_a_full_table_still_takes_known_names(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with(broker(), broker("b:1", name="b"))
    monkeypatch.setattr(module, "MAX_BROKERS", 2)
    monkeypatch.setattr(topic_queues, "MAX_QUEUE_DATAS", 4)
    assert table.register(broker(configs=topics(counter=1)), "m", NOW).refusal is None
    assert table.add_topic("T", [QueueData("a", 1, 1, 6), *nobody(9)])


def test_an_id_that_moves_from_address_to_address_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_BROKERS", 3)
    table = table_with(*(broker(f"10.0.0.{number}:1", timeout_ms=2**62) for number in range(3)))
    refusal = table.register(broker("10.0.0.4:1"), "m", NOW).refusal
    assert refusal == "register broker failed, 3 brokers are registered"


def test_a_mapping_goes_with_the_queues_of_the_broker_that_told_it() -> None:
    configs = topics("T", counter=1)
    configs.topic_queue_mapping_info_map = {
        "T": {"topic": "T", "bname": "other"},
        "gone": {"topic": "gone", "bname": "a"},
    }
    table = table_with(broker(), broker(configs=configs))
    table.add_topic("gone", [QueueData("a", 1, 1, 6)])
    for topic in ("T", "gone"):
        route = table.find_route(topic)
        assert route is not None
        assert route.topic_queue_mapping_by_broker is None


def test_a_group_of_many_topics_leaves_at_once_and_is_swept_in_steps(monkeypatch) -> None:
    monkeypatch.setattr(topic_queues, "TOPICS_PER_STEP", 10)
    many = [f"T{number}" for number in range(95)]
    table = table_with(broker(configs=topics(*many)), broker("b:1", name="b"))
    before = table.size
    table.unregister("c", "a", MASTER)
    assert table.has_dropped and table.size == before, "nothing was removed yet"
    assert table.find_route("T5") is None and table.find_route("T") is not None
    assert set(table.topics()) == {"T", "U"}
    assert run_to_result(table.topics_with_flag(lambda flag: True)) == ["T", "U"]
    steps = 0
    sweep = table.remove_in_steps()
    for _ in sweep:
        steps += 1
    assert steps == 10 and not table.has_dropped
    other = table_with(broker("b:1", name="b"))
    assert table.size == other.size


def test_a_group_that_is_swept_registers_anew(monkeypatch) -> None:
    monkeypatch.setattr(topic_queues, "TOPICS_PER_STEP", 10)
    many = [f"T{number}" for number in range(95)]
    table = table_with(broker(configs=topics(*many)))
    size = table.size
    table.unregister("c", "a", MASTER)
    sweep = table.remove_in_steps()
    next(sweep)
    table.delete_topic("T7")
    assert table.register(broker(configs=topics("A", "B", counter=1)), 1, NOW).refusal is None
    assert set(table.topics()) == {"A", "B"} and not table.has_dropped
    assert list(sweep) == []
    table.register(broker(configs=topics(*many, counter=2)), 1, NOW)
    table.delete_topic("A")
    table.delete_topic("B")
    assert table.size == size

"""ConsumerTable and ProducerTable: registration, subscriptions, notices, expiry, bounds."""

from typing import Any

import pytest

from turbopump.broker.tables import consumers, producers
from turbopump.broker.tables.consumers import ConsumerTable, TooManyGroups
from turbopump.broker.tables.producers import ProducerTable, TooManyProducerGroups
from turbopump.net.wire.heartbeat import BROADCASTING
from turbopump.net.wire.subscription import parse_subscription

NOW = 1_700_000_000_000


def test_first_member_changes_the_group_and_is_notified(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    assert table.register(peer, "a", kit.consumer("g", "T"), NOW)
    assert table.take_notices() == [(peer, "g")]
    assert table.take_notices() == []
    group = table.group("g")
    assert group is not None
    member = group.members[peer]
    assert (member.client_id, member.language, member.version) == ("a", "JAVA", peer.version)
    assert member.last_update_ms == NOW


def test_an_identical_heartbeat_changes_nothing(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    table.take_notices()
    assert not table.register(peer, "a", kit.consumer("g", "T"), NOW + 30_000)
    assert table.take_notices() == []
    group = table.group("g")
    assert group is not None
    assert group.members[peer].last_update_ms == NOW + 30_000


def test_every_member_is_told_of_a_new_one(kit: Any) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    table.register(first, "a", kit.consumer("g", "T"), NOW)
    table.take_notices()
    assert table.register(second, "b", kit.consumer("g", "T"), NOW)
    assert sorted(peer.address for peer, _ in table.take_notices()) == sorted(
        [first.address, second.address]
    )


def test_changes_of_several_heartbeats_are_told_once(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    table.register(peer, "a", kit.consumer("g", "T", "U"), NOW)
    assert table.take_notices() == [(peer, "g")]


@pytest.mark.parametrize(
    ("topics", "changed", "left"),
    [
        (("T", "U"), True, ["T", "U"]),
        (("U",), True, ["U"]),
        ((), True, []),
        (("T:A",), False, ["T"]),
    ],
)
def test_the_newest_heartbeat_sets_the_topics(
    kit: Any, topics: tuple[str, ...], changed: bool, left: list[str]
) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    assert table.register(peer, "a", kit.consumer("g", *topics, sub_version=2), NOW) is changed
    group = table.group("g")
    assert group is not None
    assert sorted(group.subscriptions) == left


@pytest.mark.parametrize(("version", "text"), [(4, "*"), (5, "*"), (6, "A")])
def test_only_a_higher_version_replaces_a_subscription(kit: Any, version: int, text: str) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T", sub_version=5), NOW)
    table.register(peer, "a", kit.consumer("g", "T:A", sub_version=version), NOW)
    found = table.find_subscription("g", "T")
    assert found is not None
    assert found.sub_string == text


def test_a_new_member_with_a_slow_clock_brings_its_filter_once_the_others_left(kit: Any) -> None:
    """While the others are connected, it may be an older member that reconnects."""
    table, old, new, newest = ConsumerTable(), kit.connect(), kit.connect(), kit.connect()

    def filter_after(peer: Any, name: str, topic: str, version: int) -> tuple[str, int]:
        table.register(peer, name, kit.consumer("g", topic, sub_version=version), NOW)
        found = table.find_subscription("g", "T")
        assert found is not None
        return found.sub_string, found.sub_version

    assert filter_after(old, "a", "T:A", 1_000) == ("A", 1_000)
    assert filter_after(new, "b", "T:B", 900) == ("A", 1_000)
    assert filter_after(newest, "c", "T:C", 950) == ("A", 1_000)
    assert table.unregister(old, "a", "g")
    assert filter_after(new, "b", "T:B", 900) == ("A", 1_000)
    assert filter_after(newest, "c", "T:C", 950) == ("C", 950)
    assert filter_after(new, "b", "T:B", 900) == ("C", 950)
    assert filter_after(old, "a", "T:A", 1_000) == ("A", 1_000)


def test_two_members_with_other_topics_flap_as_in_rocketmq(kit: Any) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    table.register(first, "a", kit.consumer("g", "T"), NOW)
    assert table.register(second, "b", kit.consumer("g", "U"), NOW)
    assert table.online_groups_of("T") == []
    assert table.register(first, "a", kit.consumer("g", "T"), NOW)
    assert table.online_groups_of("T") == ["g"]


def test_a_heartbeat_without_subscriptions_keeps_them(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW, fingerprint=5)
    changed = table.register(peer, "a", kit.consumer("g"), NOW, with_subscriptions=False)
    assert not changed
    group = table.group("g")
    assert group is not None
    assert list(group.subscriptions) == ["T"]
    assert group.fingerprint == 5


def test_no_notices_for_broadcasting_or_where_switched_off(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("b", "T", message_model=BROADCASTING), NOW)
    table.register(peer, "a", kit.consumer("s", "T"), NOW, notifies=False)
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    assert table.take_notices() == [(peer, "g")]


def test_leaving_tells_the_others_and_the_last_one_ends_the_group(kit: Any) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    for peer, name in ((first, "a"), (second, "b")):
        table.register(peer, name, kit.consumer("g", "T"), NOW)
    table.take_notices()
    assert table.unregister(first, "a", "g")
    assert table.take_notices() == [(second, "g")]
    assert table.unregister(second, "b", "g")
    assert table.group("g") is None
    assert table.take_notices() == []


def test_leaving_under_another_id_or_group_does_nothing(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    assert not table.unregister(peer, "b", "g")
    assert not table.unregister(peer, "a", "h")
    assert not table.unregister(kit.connect(), "a", "g")
    assert table.group("g") is not None


def test_a_closed_connection_leaves_all_its_groups(kit: Any) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    for group in ("g", "h"):
        table.register(first, "a", kit.consumer(group, "T"), NOW)
    table.register(second, "b", kit.consumer("g", "T"), NOW)
    table.take_notices()
    assert table.peer_closed(first) == ["g", "h"]
    assert table.take_notices() == [(second, "g")]
    assert table.group("h") is None
    assert table.peer_closed(first) == []


def test_a_client_on_two_connections_is_found_on_its_newest(kit: Any) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    table.register(first, "a", kit.consumer("g", "T"), NOW)
    table.register(second, "a", kit.consumer("g", "T"), NOW)
    group = table.group("g")
    assert group is not None
    assert group.find("a") is second
    table.register(first, "a", kit.consumer("g", "T"), NOW)
    assert group.find("a") is first
    assert group.find("b") is None


def test_silent_connections_expire(kit: Any) -> None:
    table, old, fresh = ConsumerTable(), kit.connect(), kit.connect()
    table.register(old, "a", kit.consumer("g", "T"), NOW)
    table.register(fresh, "b", kit.consumer("g", "T"), NOW + 1)
    assert table.find_expired(NOW + 120_000, 120_000) == []
    assert table.find_expired(NOW + 120_001, 120_000) == [old]


def test_a_pull_compensates_until_it_stops_renewing(kit: Any) -> None:
    table = ConsumerTable()
    table.remember_subscription("g", "T", parse_subscription("T", "A"), NOW)
    found = table.find_subscription("g", "T")
    assert found is not None
    assert found.sub_string == "A"
    assert table.group("g") is None
    assert table.online_groups_of("T") == []
    assert table.subscription_count("g") == 0
    table.forget_compensated(NOW + 600_000, 600_000)
    assert table.find_subscription("g", "T") is not None
    table.forget_compensated(NOW + 600_001, 600_000)
    assert table.find_subscription("g", "T") is None


def test_a_heartbeat_beats_a_compensation(kit: Any) -> None:
    table, peer = ConsumerTable(), kit.connect()
    table.remember_subscription("g", "T", parse_subscription("T", "A"), NOW)
    table.register(peer, "a", kit.consumer("g", "T:B"), NOW)
    found = table.find_subscription("g", "T")
    assert found is not None
    assert found.sub_string == "B"


def test_bounds_of_one_connection(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MAX_GROUPS_OF_PEER", 1)
    monkeypatch.setattr(consumers, "MAX_SUBSCRIPTIONS", 1)
    table, peer = ConsumerTable(), kit.connect()
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    table.register(peer, "a", kit.consumer("g", "T"), NOW)
    with pytest.raises(TooManyGroups):
        table.register(peer, "a", kit.consumer("h", "T"), NOW)
    with pytest.raises(TooManyGroups):
        table.register(peer, "a", kit.consumer("g", "T", "U"), NOW)


def test_bounds_of_compensation(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ConsumerTable()
    table.remember_subscription("g", "T", parse_subscription("T", "*"), NOW)
    monkeypatch.setattr(consumers, "MAX_COMPENSATED", table.compensated_size)
    table.forget_compensated(NOW + 1, 0)
    assert table.compensated_size == 0
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        table.remember_subscription(group, topic, parse_subscription(topic, "*"), NOW)
    assert table.find_subscription("g", "T") is not None
    assert table.find_subscription("g", "U") is None
    assert table.find_subscription("h", "T") is None
    table.remember_subscription("g", "T", parse_subscription("T", "x" * 1_025), NOW)
    assert table.find_subscription("g", "T") is None


def test_bounds_of_all_connections(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    table.register(first, "a", kit.consumer("g", "T"), NOW)
    table.register(first, "a", kit.consumer("h", "T"), NOW)
    monkeypatch.setattr(consumers, "MAX_MEMBERS", table.members_size)
    with pytest.raises(TooManyGroups):
        table.register(second, "b", kit.consumer("g", "T"), NOW)
    table.unregister(first, "a", "h")
    table.register(second, "b", kit.consumer("g", "T"), NOW)
    table.peer_closed(first)
    table.register(second, "b", kit.consumer("h", "T"), NOW)


def test_bounds_of_all_subscriptions(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MAX_SUBSCRIBED", 8_000)
    table, first, second = ConsumerTable(), kit.connect(), kit.connect()
    large = "T:" + "x" * 2_000
    table.register(first, "a", kit.consumer("g", large), NOW)
    table.register(first, "a", kit.consumer("g", large, sub_version=2), NOW)
    with pytest.raises(TooManyGroups):
        table.register(second, "b", kit.consumer("h", large), NOW)
    table.register(first, "a", kit.consumer("g", "T", sub_version=3), NOW)
    table.register(second, "b", kit.consumer("h", large), NOW)
    table.peer_closed(second)
    table.register(first, "a", kit.consumer("k", large), NOW)


def test_producers_come_and_go(kit: Any) -> None:
    table, first, second = ProducerTable(), kit.connect(), kit.connect()
    table.register(first, "a", "g", NOW)
    table.register(second, "b", "g", NOW)
    assert [one.client_id for one in table.producers_of("g").values()] == ["a", "b"]
    assert table.find("a") is first
    table.unregister(first, "g")
    assert table.find("a") is None
    assert list(table.producers_of("g")) == [second]
    table.peer_closed(second)
    assert table.producers_of("g") == {}
    assert table.all_producers() == {}
    table.peer_closed(second)
    table.unregister(second, "g")


def test_a_producer_stays_findable_while_any_group_is_left(kit: Any) -> None:
    table, peer = ProducerTable(), kit.connect()
    table.register(peer, "a", "g", NOW)
    table.register(peer, "a", "h", NOW)
    table.unregister(peer, "g")
    assert table.find("a") is peer


def test_a_reconnected_producer_is_not_lost_with_its_old_connection(kit: Any) -> None:
    table, old, new = ProducerTable(), kit.connect(), kit.connect()
    table.register(old, "a", "g", NOW)
    table.register(new, "a", "g", NOW)
    table.peer_closed(old)
    assert table.find("a") is new


def test_a_connection_that_changes_its_id_keeps_one(kit: Any) -> None:
    table, peer = ProducerTable(), kit.connect()
    table.register(peer, "a", "g", NOW)
    table.register(peer, "b", "g", NOW)
    assert table.find("a") is None
    assert table.find("b") is peer


def test_silent_producers_expire_and_are_bounded(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "MAX_GROUPS_OF_PEER", 1)
    table, peer = ProducerTable(), kit.connect()
    table.register(peer, "a", "g", NOW)
    table.register(peer, "a", "g", NOW + 1)
    assert table.find_expired(NOW + 120_001, 120_000) == []
    assert table.find_expired(NOW + 120_002, 120_000) == [peer]
    with pytest.raises(TooManyProducerGroups):
        table.register(peer, "a", "h", NOW)
    monkeypatch.setattr(producers, "MAX_SIZE", table.size)
    second = kit.connect()
    with pytest.raises(TooManyProducerGroups):
        table.register(second, "b", "g", NOW)
    table.unregister(peer, "g")
    table.register(second, "b", "g", NOW)

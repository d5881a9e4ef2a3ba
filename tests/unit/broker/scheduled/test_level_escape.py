"""An acting replica sends due messages of delay levels to other masters (RIP-32, I11, I14)."""

from collections.abc import Callable

from tests.unit.broker.conftest import World
from tests.unit.broker.escape.cluster import (
    BUSY,
    NAMES,
    NOT_SAFE,
    SEND,
    Replica,
    bodies,
    records,
)

from turbopump.broker.escape.bridge import AVOID_MS, BYTES_MAX, MESSAGES_MAX
from turbopump.broker.escape.topic_masters import RULES, masters_of
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.scheduled.level_escape import READ_PER_STEP, WINDOW
from turbopump.broker.tables.data_versions import ACTING_STEP
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData


def test_due_messages_go_to_another_master_and_not_into_the_own_log(replica: Replica) -> None:
    other = replica.master("m")
    replica.delayed(2, b"later", UNIQ_KEY="K1", TAGS="a", WAIT="false")
    end = replica.world.broker.store.max_log_offset
    replica.pass_time(4_900)
    assert bodies(other) == []
    replica.pass_time(400)
    (record,) = records(other)
    assert (record.body, record.queue_id, record.flag) == (b"later", 2, 5)
    assert record.born_timestamp_ms == 77
    properties = decode_properties(record.properties)
    assert (properties["UNIQ_KEY"], properties["TAGS"]) == ("K1", "a")
    assert not {"DELAY", "WAIT"} & properties.keys(), "it does not wait once more"
    assert replica.world.broker.store.max_log_offset == end
    assert replica.world.broker.delay.copy_progress() == {2: 1}
    replica.pass_time(20_000)
    assert bodies(other) == [b"later"]


def test_without_the_key_it_waits_for_its_master(make_world: Callable[..., World]) -> None:
    replica = Replica(make_world, "enableRemoteEscape=false\n")
    replica.master("m")
    replica.delayed(1, b"x")
    replica.pass_time(5_000)
    assert replica.others.sends == []
    assert replica.world.broker.delay.copy_progress() == {}


def test_a_replica_that_does_not_act_sends_nothing(replica: Replica) -> None:
    replica.master("m")
    replica.world.broker.role.is_acting = False
    replica.delayed(1, b"x")
    replica.pass_time(5_000)
    assert replica.others.sends == []


def test_messages_no_master_took_are_sent_again(replica: Replica) -> None:
    other = replica.master("m")
    replica.others.dead.add("m")
    for number in range(5):
        replica.delayed(1, b"%d" % number)
    replica.pass_time(5_000)
    assert replica.world.broker.delay.copy_progress() == {}
    runtime = runtime_table(replica.world.broker, replica.world.now_ms)
    assert "m: no answer" in runtime["escapeWaits"]
    replica.others.dead.clear()
    replica.pass_time(6_000)
    assert sorted(bodies(other)) == [b"0", b"1", b"2", b"3", b"4"]
    assert replica.world.broker.delay.copy_progress() == {1: 5}
    runtime = runtime_table(replica.world.broker, replica.world.now_ms)
    assert runtime["escapedTo_m"].startswith("5 messages, last at ")
    assert "escapeWaits" not in runtime


def test_a_topic_that_no_master_has_holds_up_nothing_else(replica: Replica) -> None:
    other = replica.master("m")
    replica.delayed(1, b"alone", topic="Alone")
    replica.delayed(1, b"x")
    replica.pass_time(3_000)
    assert bodies(other) == [b"x"]
    assert replica.world.broker.delay.copy_progress() == {}, (
        "progress is not ahead of the delivered messages"
    )
    replica.master("n", topic="Alone")
    replica.pass_time(RULES.fresh_ms + 6_000)
    assert bodies(replica.others.masters["n"], "Alone") == [b"alone"]
    assert replica.world.broker.delay.copy_progress() == {1: 2}


def test_messages_sent_after_a_gap_are_bounded(replica: Replica) -> None:
    replica.master("m")
    replica.delayed(1, b"alone", topic="Alone")
    for number in range(WINDOW + 50):
        replica.delayed(1, b"%d" % number)
    replica.pass_time(20_000)
    assert len(replica.others.sends) == WINDOW - 1


def test_no_more_is_on_its_way_than_may_be(replica: Replica) -> None:
    replica.master("m")
    replica.others.silent = True
    for level in (1, 2):
        for _ in range(MESSAGES_MAX):
            replica.delayed(level, b"x")
    replica.pass_time(8_000)
    assert len(replica.others.sends) == MESSAGES_MAX
    replica.others.answer_all()
    replica.pass_time(1_000)
    assert len(replica.others.sends) == 2 * MESSAGES_MAX


def test_a_step_is_bounded_and_no_level_waits_for_another(replica: Replica) -> None:
    replica.master("m")
    for _ in range(3 * READ_PER_STEP):
        replica.delayed(1, b"x")
    replica.delayed(2, b"y")
    replica.pass_time(600)  # the masters of T are known
    replica.world.now_ms += 5_000
    assert replica.world.broker.delay.step(replica.world.now_ms)
    assert len(replica.others.sends) == READ_PER_STEP
    assert replica.world.broker.delay.step(replica.world.now_ms)
    assert b"y" in [bytes(request.body) for _, request in replica.others.sends]


def test_an_address_that_is_none_is_passed_over() -> None:
    addresses = {"a": "10.0.0.1:10911", "b": "nowhere", "c": "x" * 9_000 + ":1", "d": "h:99999999"}
    route = TopicRouteData(
        [QueueData(name, 4, 4, 6) for name in addresses],
        [BrokerData("c", name, {0: address}) for name, address in addresses.items()],
    )
    assert [one.name for one in masters_of(route, "own")] == ["a"]
    assert masters_of(route, "a") == ()


def test_large_messages_are_bounded_by_their_bytes(replica: Replica) -> None:
    replica.master("m")
    replica.others.silent = True
    for _ in range(BYTES_MAX // 50_000 + 40):
        replica.delayed(1, b"x" * 50_000)
    replica.pass_time(3_000)
    assert len(replica.others.sends) == BYTES_MAX // 50_000 + 1


def test_a_restart_does_not_repeat_deliveries(replica: Replica) -> None:
    other = replica.master("m")
    for number in range(3):
        replica.delayed(1, b"%d" % number)
    replica.pass_time(2_000)
    delay = replica.world.broker.delay
    assert delay.take_unsaved_content() is None, "not sooner than each interval"
    delay.begin_save()
    saved = delay.take_unsaved_content()
    assert saved is not None
    replica.world.files.save("delayOffset.json", saved)
    replica.world.broker.store.close(replica.world.now_ms)
    replica.world.open()
    replica.start()
    replica.delayed(1, b"3")
    replica.pass_time(3_000)
    assert sorted(bodies(other)) == [b"0", b"1", b"2", b"3"]


def test_nothing_is_saved_that_was_not_delivered(replica: Replica) -> None:
    replica.master("m")
    replica.others.silent = True
    for number in range(3):
        replica.delayed(1, b"%d" % number)
    replica.pass_time(2_000)
    delay = replica.world.broker.delay
    delay.begin_save()
    assert delay.take_unsaved_content() is None
    later, response = replica.others.waiting.pop(1)
    later.resolve(response)
    assert delay.copy_progress() == {}
    later, response = replica.others.waiting.pop(0)
    later.resolve(response)
    assert delay.copy_progress() == {1: 2}
    saved = delay.take_unsaved_content()
    assert saved is not None
    replica.world.files.save("delayOffset.json", saved)
    written = replica.world.files.load("delayOffset.json")
    assert written is not None
    assert written["offsetTable"] == {"1": 2}


def test_an_answer_to_a_replica_that_acts_no_more_counts_for_nothing(replica: Replica) -> None:
    replica.master("m")
    replica.others.silent = True
    replica.delayed(1, b"x")
    replica.pass_time(2_000)
    replica.world.broker.role.is_acting = False
    replica.world.pass_time(200)
    replica.others.answer_all()
    assert replica.world.broker.delay.copy_progress() == {}


def test_it_counts_more_than_its_master_can_have(replica: Replica) -> None:
    replica.master("m")
    for _ in range(400):
        replica.delayed(1, b"x")
    replica.pass_time(3_000)
    assert replica.world.broker.delay.durable.data_version.counter == ACTING_STEP + 2


def test_stored_and_not_safe_is_sent_again_and_not_for_ever(replica: Replica) -> None:
    other = replica.master("m")
    replica.others.codes["m"] = NOT_SAFE
    replica.delayed(1, b"x")
    replica.pass_time(20_000)
    assert bodies(other) == [b"x", b"x", b"x"]
    assert replica.world.broker.delay.copy_progress() == {1: 1}


def test_masters_take_turns_and_one_that_is_busy_is_left_alone(replica: Replica) -> None:
    replica.master("m")
    replica.master("n", queues=2)
    for _ in range(4):
        replica.delayed(1, b"x")
    replica.pass_time(1_500)
    assert sorted(name for name, _ in replica.others.sends) == ["m", "m", "n", "n"]
    queues = {name: request.fields["e"] for name, request in replica.others.sends}
    assert queues == {"m": "2", "n": "0"}, "its queue, if there are as many"
    assert {request.code for _, request in replica.others.sends} == {SEND}
    replica.others.sends.clear()
    replica.others.codes["n"] = BUSY
    for _ in range(20):
        replica.delayed(1, b"x")
    replica.pass_time(1_000 + AVOID_MS // 2)
    tries = [name for name, _ in replica.others.sends]
    assert tries.count("n") == 1
    assert replica.world.broker.delay.copy_progress() == {1: 24}


def test_without_name_servers_nothing_is_lost(replica: Replica) -> None:
    other = replica.master("m")
    replica.others.dead.add(NAMES)
    replica.delayed(1, b"x")
    replica.pass_time(3_000)
    runtime = runtime_table(replica.world.broker, replica.world.now_ms)
    assert runtime["escapeWaits"].startswith("no name server has returned a route yet for topic T")
    replica.others.dead.clear()
    replica.pass_time(6_000)
    assert bodies(other) == [b"x"]


def test_topics_that_are_remembered_are_bounded(replica: Replica) -> None:
    masters = replica.world.broker.escape._masters
    for number in range(RULES.blanks_max + 10):
        masters.for_topic(f"T{number}")
    assert len(masters._cache) == RULES.blanks_max

"""Ordered batches: the times when a queue is blocked, and commits by acknowledgements (messages.md
4.10)."""

from pathlib import Path

import pytest

from turbopump.broker.pop import order_info
from turbopump.broker.pop.order_info import (
    STALE_MS,
    AckOutcome,
    OrderedBatch,
    OrderedBatches,
)
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import MAX_ANY_NAME_LENGTH

QUEUE = ("T", "g", 2)


@pytest.fixture
def config_files(tmp_path: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), str(tmp_path))


def given(
    batches: OrderedBatches, now_ms: int, *offsets: int, attempt: str | None = None
) -> list[int]:
    counts = batches.hand_out(
        *QUEUE,
        [QueueOffset(each) for each in offsets],
        attempt_id=attempt,
        pop_time_ms=now_ms,
        invisible_ms=1_000,
    )
    return list(counts.values())


def test_a_queue_is_blocked_until_all_is_acknowledged_or_its_time_is_over(
    config_files: ConfigFiles,
) -> None:
    batches = OrderedBatches(config_files)
    assert given(batches, 5_000, 10, 11) == [0, 0]
    assert batches.blocked_until_ms(*QUEUE, None, 5_999) == 6_000
    assert batches.blocked_until_ms(*QUEUE, None, 6_000) == 0
    assert batches.ack(*QUEUE, QueueOffset(11), 5_000) == 10
    assert batches.blocked_until_ms(*QUEUE, None, 5_100) == 6_000
    assert batches.ack(*QUEUE, QueueOffset(10), 5_000) == 12
    assert batches.blocked_until_ms(*QUEUE, None, 5_100) == 0


def test_acknowledgements_of_other_pops_and_messages_move_nothing(
    config_files: ConfigFiles,
) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10, 11)
    assert batches.ack(*QUEUE, QueueOffset(10), 4_000) is AckOutcome.IGNORED
    assert batches.ack(*QUEUE, QueueOffset(12), 5_000) is AckOutcome.UNKNOWN


def test_a_batch_that_is_not_known_moves_nothing(config_files: ConfigFiles) -> None:
    """A forged handle would skip messages; batches of a RocketMQ broker are popped again (I16)."""
    batches = OrderedBatches(config_files)
    for offset in (10, 12):
        assert batches.ack(*QUEUE, QueueOffset(offset), 5_000) is AckOutcome.IGNORED


def test_messages_that_come_again_are_counted_but_not_for_the_same_attempt(
    config_files: ConfigFiles,
) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10, 11, attempt="a")
    assert batches.blocked_until_ms(*QUEUE, "a", 5_100) == 0
    assert batches.blocked_until_ms(*QUEUE, "b", 5_100) == 6_000
    assert given(batches, 5_100, 10, 11, attempt="a") == [0, 0]
    assert given(batches, 7_000, 10, 11, 12, attempt="b") == [1, 1, 0]
    assert given(batches, 9_000, 11, 12) == [2, 1]


def test_a_message_that_is_hidden_longer_blocks_longer(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10, 11)
    assert batches.hide_message(*QUEUE, QueueOffset(11), 5_000, 9_000)
    assert not batches.hide_message(*QUEUE, QueueOffset(12), 5_000, 9_000)
    assert batches.blocked_until_ms(*QUEUE, None, 6_500) == 9_000
    batches.ack(*QUEUE, QueueOffset(11), 5_000)
    assert batches.blocked_until_ms(*QUEUE, None, 6_500) == 0


def test_the_file_is_rocketmqs_and_is_read_again(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10, 12, attempt="a")
    given(batches, 7_000, 10, 12, attempt="b")
    batches.hide_message(*QUEUE, QueueOffset(12), 7_000, 9_000)
    batches.ack(*QUEUE, QueueOffset(10), 7_000)
    content = batches.take_unsaved_content()
    assert content == {
        "table": {
            "T@g": {
                "2": {
                    "popTime": 7_000,
                    "i": 1_000,
                    "o": [10, 2],
                    "l": 7_000,
                    "cm": 1,
                    "ot": {"12": 9_000},
                    "oc": {"10": 1, "12": 1},
                    "a": "b",
                }
            }
        }
    }
    assert batches.take_unsaved_content() is None
    config_files.save("consumerOrderInfo.json", content)
    again = OrderedBatches(config_files)
    again.load()
    assert again.to_json() == content
    assert again.size == batches.size > 0
    assert again.ack(*QUEUE, QueueOffset(12), 7_000) == 13


def test_a_batch_without_messages_is_none() -> None:
    assert OrderedBatch.from_json({"popTime": 1, "i": 1, "o": []}) is None


def test_a_damaged_file_is_named(config_files: ConfigFiles) -> None:
    config_files.save("consumerOrderInfo.json", {"table": {"T@g": 3}})
    with pytest.raises(ConfigError, match=r"consumerOrderInfo\.json is damaged"):
        OrderedBatches(config_files).load()


def test_batches_of_another_master_are_removed(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10)
    of_one = batches.size
    given(batches, 7_000, 10, 11, 12)
    assert batches.size > of_one
    batches.clear_all()
    assert (batches.get(*QUEUE), batches.size) == (None, 0)


def test_stale_entries_are_forgotten(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10)
    batches.remove_stale(lambda topic, group: 3, 6_000)
    assert batches.size > 0
    batches.remove_stale(lambda topic, group: 2, 6_000)
    assert batches.size == 0
    given(batches, 5_000, 10)
    batches.remove_stale(lambda topic, group: 3, 5_001 + STALE_MS)
    assert batches.to_json() == {"table": {}}


def hand_out(batches: OrderedBatches, queue_id: int, count: int, attempt_id: str | None) -> None:
    batches.hand_out(
        *("T", "g", queue_id, [QueueOffset((1 << 40) + each) for each in range(count)]),
        attempt_id=attempt_id,
        pop_time_ms=1 << 40,
        invisible_ms=1_000,
    )


@pytest.mark.parametrize("attempt_id", [None, MAX_ANY_NAME_LENGTH * "\x01"])
def test_full_batches_do_not_grow(
    attempt_id: str | None, config_files: ConfigFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 32 messages takes seven times the size of a batch of a single message."""
    monkeypatch.setattr(order_info, "MAX_SIZE", 1 << 20)
    batches = OrderedBatches(config_files)
    queues = 0
    while batches.room("T", "g", queues, None):
        hand_out(batches, queues, 1, None)
        queues += 1
    for queue_id in range(queues):
        count = min(32, batches.room("T", "g", queue_id, attempt_id))
        assert count == (0 if attempt_id else 1) or queue_id == 0
        if count:
            hand_out(batches, queue_id, count, attempt_id)
    assert batches.size <= 1 << 20
    logged = batches.get("T", "g", 1)
    assert logged is not None
    logged = OrderedBatch(1, 1, [QueueOffset(each) for each in range(32)])
    batches.restore_batch("T", "g", 1, logged)
    assert batches.get("T", "g", 1) is None, "the state of the log has no room"
    assert batches.size <= 1 << 20
    for queue_id in range(2, 12):
        batches.remove_batch("T", "g", queue_id)
    batches.restore_batch("T", "g", 1, logged)
    assert batches.get("T", "g", 1) == logged


def test_a_batch_that_reached_no_consumer_is_saved_as_visible(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    given(batches, 5_000, 10, 11)
    batches.save()
    batches.make_batch_visible(*QUEUE, 4_000)
    assert batches.take_unsaved_content() is None, "it is another pop's"
    batches.make_batch_visible(*QUEUE, 5_000)
    batches.save()
    again = OrderedBatches(config_files)
    again.load()
    assert again.blocked_until_ms(*QUEUE, None, 5_100) == 0


@pytest.mark.parametrize("letter", ["\x01", '"', "a", "\U0001f680"])
def test_full_batches_can_be_saved(
    letter: str, config_files: ConfigFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has six bytes for a control character of an attempt id, and is not written beyond
    64 MiB."""
    monkeypatch.setattr(order_info, "MAX_SIZE", 1 << 20)
    batches = OrderedBatches(config_files)
    queue_id = 0
    attempt_id = MAX_ANY_NAME_LENGTH * letter
    while batches.room("T", "g", queue_id, attempt_id):
        hand_out(batches, queue_id, 1, attempt_id)
        queue_id += 1
    batches.save()
    assert len((tmp_path / order_info.FILE_NAME).read_bytes()) < 1 << 20
    again = OrderedBatches(config_files)
    again.load()
    assert again.size == batches.size


def test_an_attempt_id_that_is_longer_than_a_name_is_not_kept(config_files: ConfigFiles) -> None:
    batches = OrderedBatches(config_files)
    for length, until_ms in ((MAX_ANY_NAME_LENGTH, 0), (MAX_ANY_NAME_LENGTH + 1, 6_000)):
        given(batches, 5_000, 10, attempt="a" * length)
        assert batches.blocked_until_ms(*QUEUE, "a" * length, 5_100) == until_ms

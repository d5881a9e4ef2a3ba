"""A store that a real RocketMQ left is opened, and stands as RocketMQ's own recovery left it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.spark_stores import GOLDEN_NAMES

from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import Boundary, LogOffset, PutStatus, StoreError
from turbopump.net.wire.properties import decode_properties

# 5.5.0's search in a batch queue: if the time is before the last unit, UPPER returns the last unit,
# not the unit before it. Our search does not.
BATCH_UPPER_SLIP = "UPPER"


def check_queues(golden: Any, store: Store) -> None:
    for line in golden.recovered("queue"):
        topic, queue_id = line["topic"], line["queue"]
        assert store.min_queue_offset(topic, queue_id) == line["min"]
        assert store.max_queue_offset(topic, queue_id) == line["max"]
    names = {(line["topic"], line["queue"]) for line in golden.recovered("queue")}
    ours = {(topic, queue_id) for topic in store.topics() for queue_id in store.queue_ids(topic)}
    assert ours == names


def check_units(golden: Any, store: Store) -> None:
    for line in golden.recovered("unit"):
        # A batch unit's index is the offset of its first message.
        (unit,) = store.units(line["topic"], line["queue"], line["index"], 1)
        assert unit.queue_offset == line["index"]
        assert (unit.log_offset, unit.size, unit.count) == (
            line["offset"],
            line["size"],
            line["batch"],
        )
        assert unit.tags_code == line.get("extTagsCode", line["tagsCode"])


def check_times(golden: Any, store: Store, batch_topics: set[str]) -> None:
    for line in golden.recovered("timeSearch"):
        topic, queue_id, time_ms = line["topic"], line["queue"], line["timestamp"]
        found = store.search_time(topic, queue_id, time_ms, Boundary[line["boundary"]])
        if topic in batch_topics and line["boundary"] == BATCH_UPPER_SLIP:
            last = store.units(topic, queue_id, found, 2)[-1]
            assert line["result"] in (found, last.queue_offset)
        else:
            assert found == line["result"], line


def check_keys(golden: Any, store: Store, end: int) -> None:
    """RocketMQ answers each entry with the hash of the key: a record several times, and records of
    other keys. Ours answers the records that have the key, each once (COMPATIBILITY)."""
    for line in golden.recovered("keyQuery"):
        result = store.query(line["topic"], line["key"], line["max"], 0, 1 << 62)
        offsets = [int.from_bytes(view[28:36], "big") for view in result.slices]
        entries = dict.fromkeys(offset for offset in line["offsets"] if offset < end)
        assert offsets == [offset for offset in entries if has_key(store, offset, line["key"])]


def has_key(store: Store, offset: int, key: str) -> bool:
    record = store.record(LogOffset(offset))
    assert record is not None
    properties = decode_properties(record.properties)
    return key in (*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY"))


def check_records(golden: Any, store: Store, end: int) -> None:
    for line in golden.truth("record"):
        if line["offset"] < end:
            view = store.record_view(line["offset"])
            assert view is not None and len(view) == line["size"]
        else:
            assert store.record(line["offset"]) is None


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_opened_store_stands_as_java_left_it(name: str, unpack: Any) -> None:
    golden = unpack(name)
    topics = golden.batch_topics()
    store = golden.open()
    (line,) = golden.recovered("recovered")
    assert store.min_log_offset == line["minPhyOffset"]
    assert store.max_log_offset == line["maxPhyOffset"]
    assert store.dispatched_log_offset == line["confirmOffset"]
    check_queues(golden, store)
    check_units(golden, store)
    check_times(golden, store, topics)
    check_keys(golden, store, line["maxPhyOffset"])
    check_records(golden, store, line["maxPhyOffset"])
    store.close(0)
    assert not (golden.root / "abort").exists()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_opened_store_takes_more_and_opens_again(name: str, unpack: Any, message: Any) -> None:
    golden = unpack(name)
    store = golden.open()
    end = store.max_log_offset
    maximum = store.max_queue_offset("Basic", 0)
    appended = store.append(message("Basic", 0, b"more"), 1_800_000_000_000)
    assert appended.status is PutStatus.PUT_OK
    assert appended.log_offsets[0] >= end
    assert appended.queue_offset == maximum
    store.close(1_800_000_000_000)
    again = golden.open()
    assert again.max_queue_offset("Basic", 0) == maximum + 1
    record = again.record(appended.log_offsets[0])
    assert record is not None and record.body == b"more"
    again.close(1_800_000_000_000)


def torn(unpack: Any, name: str) -> Any:
    """A copy of `killed` with the damage that its .torn.json lists."""
    golden = unpack("killed")
    how = json.loads(golden.data(f"{name}.torn.json"))
    path = golden.root / "commitlog" / how["file"]
    position = how["cutOffset"] - int(how["file"])
    with path.open("r+b") as file:
        if how["how"] == "middle":
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 0xFF]))
        else:
            file.truncate(position)
            if how["how"] == "zeroed":
                file.truncate(how["lengthAfter"])
    assert path.stat().st_size == how["lengthAfter"]
    golden.name = name
    return golden, how


@pytest.mark.parametrize("name", ["killed-torn-zeroed", "killed-torn-middle"])
def test_torn_log_is_cut_where_java_cuts_it(name: str, unpack: Any) -> None:
    golden, how = torn(unpack, name)
    store = golden.open(set())
    (line,) = golden.recovered("recovered")
    assert store.max_log_offset == line["maxPhyOffset"] == how["recordOffset"]
    check_queues(golden, store)
    check_units(golden, store)
    check_times(golden, store, set())
    check_keys(golden, store, how["recordOffset"])
    store.close(0)
    # Law 6: the truncated bytes are gone from the disk too, including good records after the
    # damage.
    data = (golden.root / "commitlog" / how["file"]).read_bytes()
    assert not any(data[how["recordOffset"] - int(how["file"]) :])


def test_short_log_file_which_java_refuses_is_cut_like_a_zeroed_one(unpack: Any) -> None:
    golden, how = torn(unpack, "killed-torn-short")
    assert golden.recovered("recovered")[0]["loadOk"] is False
    store = golden.open(set())
    assert store.max_log_offset == how["recordOffset"]
    golden.name = "killed-torn-zeroed"
    check_queues(golden, store)
    check_units(golden, store)
    check_keys(golden, store, how["recordOffset"])
    store.close(0)
    assert (golden.root / "commitlog" / how["file"]).stat().st_size == 2097152


@pytest.mark.parametrize("name", ["shapes-v4", "killed"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"mapped_file_size_commit_log": 1 << 20},
        {"mapped_file_size_commit_log": 1 << 22},
        {"mapped_file_size_consume_queue": 2000},
        {"max_index_num": 2000},
    ],
)
def test_files_of_another_size_are_refused(name: str, sizes: dict[str, int], unpack: Any) -> None:
    golden = unpack(name)
    before = {path: path.stat().st_size for path in golden.root.rglob("*")}
    config = replace(golden.config, **sizes)
    with pytest.raises(StoreError, match="configured for"):
        Store.open(RealFiles(), config, InlineDisk(), 0)
    assert {path: path.stat().st_size for path in golden.root.rglob("*")} == before

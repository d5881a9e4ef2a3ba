"""Timer files of RocketMQ 5.5.0: read, rebuilt byte for byte, gone on with."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden_stores.conftest import NOW_MS, Golden
from tests.golden_stores.test_transactions import Continued

from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.timer import timer_check, timer_metrics
from turbopump.engine.timer.timer_files import TIMER_TOPIC, TimerFiles
from turbopump.engine.timer.timer_log import TimerLog
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.timer import UNIT_SIZE, read_facts


@pytest.fixture
def shapes(unpack: Callable[[str], Golden]) -> Golden:
    return unpack("shapes-v4")


def log_of(shapes: Golden) -> TimerLog:
    log = TimerLog(RealFiles(), f"{shapes.root}/timerlog", shapes.config.mapped_file_size_timer_log)
    log.load(0)
    return log


def test_units_equal_javas(shapes: Golden) -> None:
    log, truth = log_of(shapes), shapes.truth("timerLog")
    assert log.end == len(truth) * UNIT_SIZE
    for line in truth:
        unit = log.read_unit(line["position"])
        assert unit is not None
        expected = (
            line["prevPos"],
            line["magic"],
            line["currWriteTime"],
            line["delayedTime"],
            line["offsetPy"],
            line["sizePy"],
            line["hashOfRealTopic"],
        )
        assert tuple(unit) == expected


def test_checkpoint_equals_javas(shapes: Golden) -> None:
    found, is_whole = timer_check.load(RealFiles(), str(shapes.root), 1_000)
    (line,) = shapes.truth("timerCheck")
    assert tuple(found) == tuple(line[f"long{number}"] for number in range(7))
    assert not is_whole
    page = Path(shapes.root) / "config" / timer_check.FILE_NAME
    java = page.read_bytes()
    timer_check.save(RealFiles(), str(shapes.root), found)
    assert page.read_bytes() == java


def test_metrics_are_read_and_written_as_java_has_them(shapes: Golden) -> None:
    """Metrics decode and encode as Java's do, except for the data version, which is the
    broker's.
    """
    java = ConfigFiles(RealFiles(), f"{shapes.root}/config").load(timer_metrics.FILE_NAME)
    metrics = timer_metrics.TimerMetrics()
    metrics.replace_counts(java)
    assert java["timingCount"], "there are some"
    assert metrics.to_json() == {"timingCount": java["timingCount"]}


@pytest.mark.parametrize("gone", ["timerwheel", "mark"])
def test_wheel_is_rebuilt_byte_for_byte(shapes: Golden, gone: str) -> None:
    """All slots are rebuilt, delivered slots, too: the checkpoint has no deliveries."""
    wheel = Path(shapes.root) / "timerwheel"
    java = wheel.read_bytes()
    check, _ = timer_check.load(RealFiles(), str(shapes.root), 1_000)
    timer_check.save(RealFiles(), str(shapes.root), check._replace(read_ms=0))
    if gone == "timerwheel":
        wheel.unlink()
    store = shapes.open()
    timers = TimerFiles(store, RealFiles(), InlineDisk())
    timers.load()
    timers.close(timers.checkpoint)
    store.close(NOW_MS)
    assert wheel.read_bytes() == java


def test_log_and_wheel_are_rebuilt_from_the_queue(shapes: Golden) -> None:
    """Timers that are put in again at Java's times give Java's bytes."""
    root = Path(shapes.root)
    java = (root / "timerlog" / ("0" * 20)).read_bytes(), (root / "timerwheel").read_bytes()
    times = [(line["currWriteTime"], line["delayedTime"]) for line in shapes.truth("timerLog")]
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    (root / "config" / "timercheck").unlink()
    store = shapes.open()
    timers = TimerFiles(store, RealFiles(), InlineDisk())
    timers.load()
    units = store.units(TIMER_TOPIC, 0, QueueOffset(0), 1_000)
    for unit, (write_ms, delay_ms) in zip(units, times, strict=True):
        assert timers.ensure_room(0)
        record: Any = store.record(unit.log_offset)
        out_ms, _delay, _deliver, _topic, topic_hash, is_recall = read_facts(record.properties)
        is_rolled = write_ms + delay_ms != out_ms
        magic = 1 | (2 if is_rolled else 0) | (4 if is_recall else 0)
        slot_ms = write_ms + delay_ms
        timers.add(write_ms, slot_ms, unit.log_offset, unit.size, topic_hash, magic)
    timers.close(timers.checkpoint)
    store.close(NOW_MS)
    assert (root / "timerlog" / ("0" * 20)).read_bytes() == java[0]
    assert (root / "timerwheel").read_bytes() == java[1]


def test_units_of_records_that_are_gone_go(shapes: Golden) -> None:
    """Units whose records are missing are removed, as after a power cut: the queue ends before the
    log of timers.
    """
    check, _ = timer_check.load(RealFiles(), str(shapes.root), 1_000)
    behind = check._replace(queue_offset=QueueOffset(20), master_queue_offset=QueueOffset(20))
    timer_check.save(RealFiles(), str(shapes.root), behind)
    store = shapes.open()
    timers = TimerFiles(store, RealFiles(), InlineDisk())
    timers.load()
    assert (timers.queue_offset, timers.log_end) == (20, 20 * UNIT_SIZE)
    assert timers.count(1_795_267_339) == 0  # its units are of messages 22 to 28
    timers.close(timers.checkpoint)
    store.close(NOW_MS)


def test_a_wheel_of_another_size_is_made_anew(shapes: Golden) -> None:
    store = shapes.open()
    timers = TimerFiles(store, RealFiles(), InlineDisk(), 2_000)
    timers.load()
    assert (Path(shapes.root) / "timerwheel").stat().st_size == 2_000 * 32
    timers.close(timers.checkpoint)
    store.close(NOW_MS)


class Later(Continued):
    """A broker on the unpacked store, a second after the last slot that Java delivered."""

    def open(self) -> None:
        super().open()
        self.now_ms = 1_795_267_370_000


@pytest.mark.parametrize("precision_ms", [1_000, 100, 10_000])
def test_waiting_timers_come_on_time_with_another_precision(
    shapes: Golden, precision_ms: int
) -> None:
    """Java's `timerPrecisionMs` was 1000; each timer that it left waiting is delivered once."""
    (check,) = shapes.truth("timerCheck")
    world = Later(shapes, f"\ntimerPrecisionMs={precision_ms}\n")
    store, due = world.broker.store, {}
    old_end = store.max_log_offset
    for unit in store.units(TIMER_TOPIC, 0, QueueOffset(0), 1_000):
        record: Any = store.record(unit.log_offset)
        out_ms, _delay, _deliver, *_rest, is_recall = read_facts(record.properties)
        if out_ms >= check["long0"] and not is_recall:
            found = decode_properties(record.properties)
            due[found["UNIQ_KEY"]] = out_ms, found["REAL_TOPIC"], int(found["REAL_QID"])
    assert len(due) > 3
    came: dict[str, list[int]] = {}
    for out_ms in sorted({out_ms for out_ms, *_ in due.values()}):
        world.now_ms = max(world.now_ms, out_ms - 15_000)
        world.pass_time(out_ms + 1_000 - world.now_ms)
    for topic, queue_id in {(topic, queue_id) for _, topic, queue_id in due.values()}:
        for unit in store.units(topic, queue_id, QueueOffset(0), 10_000):
            if unit.log_offset >= old_end:
                record = store.record(unit.log_offset)
                key = decode_properties(record.properties)["UNIQ_KEY"]
                came.setdefault(key, []).append(record.store_timestamp_ms)
    assert came.keys() == due.keys()
    for key, (out_ms, *_) in due.items():
        (stored_ms,) = came[key]
        assert out_ms <= stored_ms <= out_ms + 1_100, key
    world.close()

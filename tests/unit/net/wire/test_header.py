"""Typed headers over extFields."""

from dataclasses import dataclass, field

import pytest

from turbopump.net.wire.header import BadHeader, Int32, Int64, read_header, write_header


@dataclass(slots=True)
class Sample:
    topic: str
    queue_id: Int32
    suspend_timeout_millis: Int64
    is_force: bool
    ratio: float = 0.5
    remark: str | None = None
    level: Int32 | None = None
    plain: int | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


REQUIRED = {"topic": "T", "queueId": "1", "suspendTimeoutMillis": "15000", "isForce": "true"}


def test_read() -> None:
    header = read_header(Sample, REQUIRED | {"bname": "b", "level": "-2", "unknown": "x"})
    assert header == Sample("T", 1, 15000, True, level=-2, broker_name="b")


def test_written_in_order_without_none() -> None:
    header = Sample("T", 1, 2, False, broker_name="b")
    assert list(write_header(header).items()) == [
        ("topic", "T"),
        ("queueId", "1"),
        ("suspendTimeoutMillis", "2"),
        ("isForce", "false"),
        ("ratio", "0.5"),
        ("bname", "b"),
    ]


@pytest.mark.parametrize("missing", sorted(REQUIRED))
def test_a_missing_required_member_is_named(missing) -> None:
    fields = {key: value for key, value in REQUIRED.items() if key != missing}
    with pytest.raises(BadHeader, match=f"<{missing}> is null") as caught:
        read_header(Sample, fields)
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("queueId", "x"),
        ("queueId", "2147483648"),
        ("queueId", "-2147483649"),
        ("queueId", "1.0"),
        ("queueId", " 1"),
        ("queueId", "1_0"),
        ("queueId", "٣"),
        ("suspendTimeoutMillis", "9223372036854775808"),
        ("plain", "9" * 5000),
        ("ratio", "half"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key, text) -> None:
    with pytest.raises(BadHeader, match=f"<{key}>"):
        read_header(Sample, REQUIRED | {key: text})


def test_limits_of_the_types() -> None:
    fields = REQUIRED | {"queueId": "-2147483648", "suspendTimeoutMillis": "+9223372036854775807"}
    header = read_header(Sample, fields)
    assert (header.queue_id, header.suspend_timeout_millis) == (-(1 << 31), (1 << 63) - 1)


def test_booleans_are_javas() -> None:
    assert read_header(Sample, REQUIRED | {"isForce": "TRUE"}).is_force
    assert not read_header(Sample, REQUIRED | {"isForce": "1"}).is_force


def test_empty_text_counts_as_missing_unless_the_member_is_text() -> None:
    header = read_header(Sample, REQUIRED | {"topic": "", "level": "", "remark": ""})
    assert (header.topic, header.level, header.remark) == ("", None, "")
    with pytest.raises(BadHeader, match="<queueId> is null"):
        read_header(Sample, REQUIRED | {"queueId": ""})

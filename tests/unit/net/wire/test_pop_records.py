"""Check points and acknowledgements as RocketMQ 5.5.0 wrote them (tests/golden_stores has all)."""

import base64

import pytest

from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import (
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
    acked_offsets,
    unique_key,
)

KEY = CheckPointKey("Popped", "G_pop", 0, QueueOffset(4), 1795267326369, "broker-a")
CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"G_pop","d":[0,2],"it":20000,"n":2,"pt":1795267326369,"q":0,'
    b'"reviveTime":1795267346369,"ro":0,"so":4,"sp":false,"t":"Popped"}'
)


def test_a_check_point_is_read_and_written_to_the_byte() -> None:
    check_point = CheckPoint.parse(CHECK_POINT)
    assert check_point == CheckPoint(KEY, 20_000, (0, 2))
    assert check_point.encode_body() == CHECK_POINT
    assert check_point.queue_offsets() == [4, 6]
    assert check_point.index_of(6) == 1
    assert check_point.index_of(5) is None


def test_a_check_point_of_an_old_release_has_no_distances() -> None:
    body = CHECK_POINT.replace(b'"d":[0,2],', b"")
    assert CheckPoint.parse(body).distances == (0, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"n":2', b'"n":0'),
        (b'"n":2', b'"n":33'),
        (b'"d":[0,2]', b'"d":[0]'),
        (b'"d":[0,2]', b'"d":[0,-2]'),
        (b'"so":4', b'"so":-4'),
        (b'"pt":1795267326369', b'"pt":"x"'),
        (b'"q":0', b'"q":4294967296'),
    ],
)
def test_a_damaged_check_point_is_refused(old: bytes, new: bytes) -> None:
    with pytest.raises(BadBody):
        CheckPoint.parse(CHECK_POINT.replace(old, new))


def test_acknowledgements_are_read_and_written() -> None:
    one = Acknowledgement(KEY, (QueueOffset(6),))
    assert Acknowledgement.parse(one.encode_body(), False) == one
    assert b'"ao":6' in one.encode_body()
    many = Acknowledgement(KEY, (QueueOffset(4), QueueOffset(6)), is_batch=True)
    assert Acknowledgement.parse(many.encode_body(), True) == many
    assert b'"ao":-1,"aol":[4,6]' in many.encode_body()
    assert (one.tag, many.tag) == ("ack", "bAck")


def test_long_names_are_read() -> None:
    body = (
        b'{"ackOffset":6,"startOffset":4,"consumerGroup":"G_pop","topic":"Popped","queueId":0,'
        b'"popTime":1795267326369,"brokerName":"broker-a"}'
    )
    assert Acknowledgement.parse(body, False) == Acknowledgement(KEY, (QueueOffset(6),))


def test_unique_keys() -> None:
    assert unique_key(KEY, "ck") == "Popped@0@4@G_pop@1795267326369@broker-a@ck"
    assert unique_key(KEY, "ack", 6) == "Popped@0@6@G_pop@1795267326369@broker-a@ack"
    assert unique_key(KEY, "bAck", -1) == "Popped@0@-1@G_pop@1795267326369@broker-a@ack"


def test_bit_sets_are_little_endian() -> None:
    assert acked_offsets(QueueOffset(10), base64.b64decode("BQE=")) == [10, 12, 18]

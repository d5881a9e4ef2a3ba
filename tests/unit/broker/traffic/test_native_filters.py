"""Filters on the native path: pulls are served natively and return only matching messages."""

import tempfile
from collections.abc import Iterator

import pytest
from tests.lane.world import Driven, frame_of, make, subscribe
from tests.unit.broker.traffic.test_fast_path import send

from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.command import Codec, decode
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.message import decode_messages

KEYED = "UNIQ_KEY\x017F0000010000558C0000000000%06d\x02WAIT\x01true\x02a\x01%d\x02"


@pytest.fixture
def reader() -> Iterator[Driven]:
    """A connection to a broker with 40 messages, in which every tenth has the same number."""
    with tempfile.TemporaryDirectory() as folder:
        connection = Driven(make(folder, FlushMode.ASYNC_FLUSH))
        for number in range(40):
            properties = KEYED % (number, number % 10)
            send(connection, number, properties=properties, body=b"%d" % number)
        yield connection
        connection.world.close()
        connection.near.close()
        connection.far.close()


def pull(driven: Driven, opaque: int, at: int = 0) -> tuple[int, list[bytes]]:
    """(next queue offset, bodies) of a pull by the group's own filter."""
    header = PullMessageRequest("sql", "Plain", 0, QueueOffset(at), 32, 0, 0, 0, 0)
    driven.feed(frame_of({"header": header, "codec": Codec.JSON, "version": 513}, opaque), 1 << 20)
    driven.collect()
    response = decode(driven.responses[opaque][0])
    bodies = [bytes(one.body) for one in decode_messages(bytes(response.body))]
    return int(response.fields["nextBeginOffset"]), bodies


def read(driven: Driven, opaque: int) -> list[bytes]:
    """All matching messages: a pull ends with a queue file, and there are several."""
    at, found = 0, []
    while at < 40:
        at, bodies = pull(driven, opaque, at)
        found += bodies
        opaque += 1
    return found


def test_natively_served_messages_are_the_matching_ones(reader: Driven) -> None:
    subscribe(reader.world, "sql", "a = 7 OR a IS NULL", 9, "SQL92")
    wanted = [b"7", b"17", b"27", b"37"]
    assert read(reader, 100) == wanted
    before = reader.pulled.found_count
    assert read(reader, 200) == wanted
    assert reader.pulled.found_count >= before + 2


def test_another_expression_counts_at_once(reader: Driven) -> None:
    subscribe(reader.world, "sql", "a = 7", 9, "SQL92")
    for opaque in (100, 200):
        read(reader, opaque)
    subscribe(reader.world, "sql", "a = 3", 10, "SQL92")
    for opaque in (300, 400):
        assert read(reader, opaque) == [b"3", b"13", b"23", b"33"]


def test_where_nothing_matches_the_handler_says_so(reader: Driven) -> None:
    subscribe(reader.world, "sql", "a = 7", 9, "SQL92")
    for opaque in (100, 200):
        read(reader, opaque)
    before = reader.pulled.found_count
    assert pull(reader, 300, 38) == (40, [])
    assert reader.pulled.found_count == before

"""The rows that are messages, their encoding, and the errors about other rows."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from turbopump.net.client.credentials import Credentials
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import Message, SendResult, SendStatus
from turbopump.net.wire.queues import MessageQueue
from turbopump.spark.sink import sending
from turbopump.spark.sink.sending import NotSafe, Target, make_messages, request_chains
from turbopump.spark.sink.writer import WrongRows, target_of
from turbopump.spark.source.options import BadOption

PAIRS = pa.map_(pa.string(), pa.string())


def schema(**kinds: pa.DataType) -> StructType:
    return from_arrow_schema(pa.schema(list(kinds.items())))


BODY = schema(body=pa.binary())


def test_a_target_equals_the_options() -> None:
    given = {"namesrv": "a:1;b:2", "TOPIC": "T", "checkpointLocation": "/c"}
    assert target_of(given, BODY, False) == Target(
        "a:1;b:2", "T", "turbopump-spark", False, 30_000, 64
    )
    more = {"tls": "/ca.pem", "group": "g", "timeoutMs": "5", "inFlight": "1"}
    assert target_of(given | more, BODY, False) == Target("a:1;b:2", "T", "g", "/ca.pem", 5, 1)
    assert target_of(given | {"tls": "True"}, BODY, False).tls is True


def test_a_target_has_the_credentials_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: alice\nsecretKey: s3cret\n")
    file.chmod(0o600)
    given = {"namesrv": "a:1", "topic": "T"}
    named = target_of(given | {"credentials": str(file)}, BODY, False)
    assert named.credentials == Credentials("alice", "s3cret")
    assert "alice" in repr(named) and "s3cret" not in repr(named)
    assert pickle.loads(pickle.dumps(named)) == named
    for path, words in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadOption, match=f"^credentials: {path}: {words}"):
            target_of(given | {"credentials": str(path)}, BODY, False)
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "bob")
    with pytest.raises(BadOption, match="TURBOPUMP_SECRET_KEY is not"):
        target_of(given, BODY, False)
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "b0b")
    assert target_of(given, BODY, False).credentials == Credentials("bob", "b0b")


TEXT = pa.string()
HERE = {"namesrv": "a:1"}


@pytest.mark.parametrize(
    ("given", "columns", "error", "words"),
    [
        ({"topic": "T"}, BODY, BadOption, "no name server was named"),
        (HERE | {"topik": "T"}, BODY, BadOption, "no option 'topik'; there are namesrv, topic"),
        (HERE | {"topic": "T", "inFlight": "0"}, BODY, BadOption, "inFlight is '0'"),
        (HERE, BODY, WrongRows, "no topic was named"),
        (HERE | {"topic": "T"}, schema(keys=TEXT), WrongRows, "needs a column 'body'"),
        (HERE, schema(body=pa.int32(), topic=TEXT), WrongRows, "binary or string, not int"),
        (HERE, schema(body=TEXT, size=TEXT), WrongRows, "no column 'size'; it has body, topic"),
        (HERE | {"topic": "T"}, schema(body=TEXT, topic=TEXT), WrongRows, "named twice"),
    ],
)
def test_faults_are_reported(
    given: dict[str, str], columns: StructType, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        target_of(given, columns, False)


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(BadOption, match=r"only appended to: mode\('append'\)"):
        target_of({"namesrv": "a:1", "topic": "T"}, BODY, True)


def batch(rows: list[dict[str, Any]], **kinds: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def test_rows_are_messages() -> None:
    pairs = [("UNIQ_KEY", "1"), ("KEYS", "k"), ("own", "v")]
    rows = [
        {"body": "zwei Wörter", "keys": ["a", "b"], "properties": pairs, "tags": "t", "flag": 3},
        {"body": "x"},
    ]
    lists = batch(
        rows, body=TEXT, keys=pa.list_(TEXT), properties=PAIRS, tags=TEXT, flag=pa.int32()
    )
    assert list(make_messages(lists, "T")) == [
        Message("T", "zwei Wörter".encode(), "t", ("a", "b"), {"own": "v"}, flag=3),
        Message("T", b"x", properties={}),
    ]
    named = batch(
        [{"body": b"x", "topic": "U", "keys": " a b"}], body=pa.binary(), topic=TEXT, keys=TEXT
    )
    assert list(make_messages(named, None)) == [Message("U", b"x", keys=["a", "b"], properties={})]


@pytest.mark.parametrize(
    ("row", "words"), [({"topic": "T"}, "needs a body"), ({"body": b"x"}, "names no topic")]
)
def test_a_row_that_is_no_message_is_shown(row: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{words}: the row \{{'topic'"):
        list(make_messages(batch([row], body=pa.binary(), topic=TEXT), None))


def test_small_messages_travel_together_and_those_of_a_key_in_order() -> None:
    small = [Message("T", b"%d" % number) for number in range(70)]
    large = Message("T", bytes(5000))
    medium = [Message("U", bytes(3000)) for _ in range(30)]
    late = Message("T", b"x", delay_level=1)
    keyed = [Message("T", b"%d" % number, sharding_key=f"k{number % 2}") for number in range(6)]
    rows = [*small[:35], large, *keyed, *medium, late, *small[35:]]
    found = list(request_chains(rows))
    assert sum(len(request) for chain in found for request in chain) == len(rows)
    assert [[large]] in found and [[late]] in found
    assert [small[:64]] in found and [small[64:]] in found
    assert [medium[:21]] in found, "64 KiB"
    assert [[one] for one in keyed[::2]] in found and [[one] for one in keyed[1::2]] in found


def test_a_message_that_is_not_safe_is_not_sent() -> None:
    result = SendResult(SendStatus.FLUSH_SLAVE_TIMEOUT, "1", "2", MessageQueue("T", "b", 0), 5)
    with pytest.raises(NotSafe, match="stored by b, which answered FLUSH_SLAVE_TIMEOUT"):
        sending._check_safe(result)

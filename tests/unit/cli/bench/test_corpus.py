"""Bodies of a dataset as requests: their sources, and the frames of the native code."""

from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmap_ninja import RaggedMmap, StringsMmap

from turbopump.cli.bench import frames as frames
from turbopump.cli.bench.corpus import Corpus, open_corpus
from turbopump.cli.bench.frames import Shape, Templates
from turbopump.cli.bench.plan import Plan
from turbopump.cli.errors import UserError
from turbopump.net.wire.command import Codec, decode, encode
from turbopump.net.wire.message import decode_batch
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.queues import MessageQueue
from turbopump.pyx.load import Load
from turbopump.pyx.load_parts import put_replay

QUEUE = MessageQueue("Topic", "broker-a", 12)
BODIES = [b"one", b"", b"three" * 1000, b"4"]


def buffers(bodies: list[bytes]) -> tuple[bytes, array, array]:
    """Consecutive bodies in a buffer with further bytes before and after them."""
    ends = np.cumsum([2, *map(len, bodies)])
    return (
        b".." + b"".join(bodies) + b"..",
        array("q", ends[:-1].tolist()),
        array("q", ends[1:].tolist()),
    )


@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    batch=st.integers(1, 5),
    codec=st.sampled_from(Codec),
    prefix=st.sampled_from(["", "7F0000010001AABBCCDD"]),
)
def test_requests_have_the_bodies_by_turns(bodies, batch, codec, prefix) -> None:
    shape = Shape(codec=codec, batch=batch, unique_prefix=prefix)
    made = Templates()
    number = frames.add_send(made, shape, QUEUE, 0, 0)
    element, unique_at = frames.empty_element(shape) if batch > 1 else (b"", 0)
    requests = put_replay(
        bytes(made.texts),
        made.rows[number],
        *buffers(bodies),
        element=element,
        unique_at=unique_at,
        per_send=batch,
        serial=0xABC,
        count=2 * len(bodies),
    )
    sent: list[bytes] = []
    keys: list[str | None] = []
    for request in requests:
        command = decode(request)
        assert b"".join(bytes(part) for part in encode(command)) == request, "lengths agree"
        if batch == 1:
            sent.append(command.body)
            continue
        for flag, body, properties in decode_batch(command.body):
            assert flag == 0
            sent.append(body)
            keys.append(decode_properties(properties).get("UNIQ_KEY"))
    assert sent == (bodies * 2 * batch)[: len(sent)] and len(sent) == 2 * batch * len(bodies)
    if prefix and batch > 1:
        assert len(set(keys)) == len(keys), "each message has its own key"
    else:
        assert set(keys) <= {None}


@pytest.mark.parametrize(
    ("data", "starts", "ends", "more"),
    [
        (b"abc", [0], [4], {}),
        (b"abc", [2], [1], {}),
        (b"abc", [-1], [1], {}),
        (b"abc", [], [], {}),
        (b"abc", [0, 1], [1], {}),
        (b"abc", [0], [1], {"per_send": 2}),
        (b"abc", [0], [1], {"per_send": 0}),
        (b"abc", [0], [1], {"per_send": 2, "element": b"short"}),
        (b"abc", [0], [1], {"per_send": 2, "element": b"x" * 30, "unique_at": 19}),
    ],
)
def test_a_corpus_that_reaches_out_of_memory_is_refused(data, starts, ends, more) -> None:
    load = Load(b"x" * 64, [(0, 64, 8, 18, 0, 0, 0, 1)], b"", connections=1)
    with pytest.raises(ValueError):
        load.set_corpus(data, array("q", starts), array("q", ends), **more)


def ninja(folder: Path, bodies: list[bytes]) -> Path:
    RaggedMmap.from_lists(folder, [np.frombuffer(body, np.uint8) for body in bodies])
    return folder


def contents(corpus: Corpus) -> list[bytes]:
    places = zip(corpus.starts, corpus.ends, strict=True)
    return [bytes(corpus.data[start:end]) for start, end in places]


def test_a_dataset_of_mmap_ninja_is_a_corpus(tmp_path) -> None:
    corpus = open_corpus(ninja(tmp_path / "bodies", BODIES))
    assert contents(corpus) == BODIES
    assert (len(corpus), corpus.size_max) == (4, 5000)


def test_mmap_ninja_opens_a_dataset(tmp_path, monkeypatch) -> None:
    """The library opens the dataset; its files are not read without it."""
    opened: list[Path] = []

    class Noted(RaggedMmap):
        def __init__(self, folder: Path) -> None:
            opened.append(folder)
            super().__init__(folder)

    folder = ninja(tmp_path / "bodies", BODIES)
    monkeypatch.setattr("mmap_ninja.RaggedMmap", Noted)
    assert contents(open_corpus(folder)) == BODIES
    assert opened == [folder]


def test_the_body_column_of_an_export_is_taken(tmp_path) -> None:
    ninja(tmp_path / "body", BODIES)
    StringsMmap.from_strings(tmp_path / "tags", ["a"]).close()
    assert contents(open_corpus(tmp_path)) == BODIES
    with pytest.raises(UserError, match="column of strings"):
        open_corpus(tmp_path / "tags")


def test_parquet_is_unpacked_in_the_order_of_its_files(tmp_path) -> None:
    for name, bodies in (("part-1", BODIES[2:]), ("part-0", [*BODIES[:2], None]), ("_tmp", [b"x"])):
        table = pa.table({"topic": ["t"] * len(bodies), "body": pa.array(bodies, pa.binary())})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert contents(open_corpus(tmp_path)) == BODIES
    assert contents(open_corpus(tmp_path / "part-1.parquet")) == BODIES[2:]


def test_an_invalid_corpus_is_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="neither"):
        open_corpus(tmp_path)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match="no column body"):
        open_corpus(tmp_path)
    (tmp_path / "other.parquet").write_bytes(b"PAR1 is not all")
    with pytest.raises(UserError, match="no Parquet"):
        open_corpus(tmp_path)
    wide = tmp_path / "wide"
    RaggedMmap.from_lists(wide, [np.array([1, 2], np.int64)])
    with pytest.raises(UserError, match="int64, not of bytes"):
        open_corpus(wide)
    cut = ninja(tmp_path / "cut", BODIES)
    (cut / "data.ninja").write_bytes(b"on")
    with pytest.raises(UserError, match="cut short"):
        open_corpus(cut)
    damaged = ninja(tmp_path / "damaged", BODIES)
    (damaged / "ends" / "data.ninja").write_bytes(array("q", [3, 1 << 40, 5003, 5004]).tobytes())
    with pytest.raises(UserError, match="reaches out"):
        open_corpus(damaged)


def test_the_largest_body_must_fit_into_a_request(tmp_path) -> None:
    corpus = open_corpus(ninja(tmp_path / "bodies", [b"x" * (2 << 20)]))
    shape = Shape(size=corpus.size_max, batch=8)
    with pytest.raises(UserError, match="do not fit"):
        Plan(["n:1"], shape=shape, corpus=corpus, send_connections=1).check_possible()
    assert Plan(["n:1"], corpus=corpus).describe_as_json()["replay"] == str(tmp_path / "bodies")


@pytest.mark.parametrize(
    "column",
    [
        *(pa.array([1, 2]), pa.array([True]), pa.array([[b"a"]]), pa.nulls(2)),
        pa.array([{"a": b"x"}]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_has_no_bytes_is_refused(tmp_path, column) -> None:
    """Such a column must not end in a traceback of pyarrow."""
    pq.write_table(pa.table({"body": column}), tmp_path / "some.parquet")
    with pytest.raises(UserError, match=r"has a column body of .+, not of bytes$"):
        open_corpus(tmp_path)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(2)])
def test_texts_and_fixed_sizes_are_bytes(tmp_path, kind) -> None:
    bodies = pa.array(["ab", "cd"]).cast(pa.binary()).cast(kind)
    pq.write_table(pa.table({"body": bodies}), tmp_path / "some.parquet")
    assert contents(open_corpus(tmp_path)) == [b"ab", b"cd"]


def test_parquet_without_a_byte_has_no_bodies(tmp_path) -> None:
    pq.write_table(pa.table({"body": pa.array([None, b""], pa.binary())}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has no bodies"):
        open_corpus(tmp_path)

"""Replication streams: any split gives the same frames, any bytes a frame or BadFrame (R17)."""

import random

from hypothesis import given
from hypothesis import strategies as st

from turbopump.engine.log.epochs import Epochs
from turbopump.net.ha.frames import (
    BODY_MAX,
    ENTRIES_READ_MAX,
    ENTRIES_SENT_MAX,
    Ack,
    BadFrame,
    DefaultHaFramer,
    DefaultHaTransfer,
    Handshake,
    HandshakeReply,
    MasterFramer,
    ReplicaFramer,
    Report,
    ReportFramer,
    Transfer,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSET = st.integers(0, (1 << 63) - 1)
EPOCH = st.integers(0, (1 << 31) - 1)
BODY = st.binary(max_size=300)


def ascending(pairs: list[tuple[int, int]]) -> Epochs:
    names = sorted({epoch for epoch, _start in pairs})
    return Epochs.from_pairs(zip(names, sorted(start for _epoch, start in pairs), strict=False))


EPOCHS = st.lists(st.tuples(EPOCH, OFFSET), max_size=8).map(ascending)
REPLICA = st.builds(Handshake, INT64, st.booleans(), st.booleans()) | st.builds(Ack, INT64)
MASTER = st.builds(HandshakeReply, OFFSET, EPOCHS) | st.builds(
    Transfer, OFFSET, EPOCH, OFFSET, INT64, BODY
)
KINDS = [
    (ReplicaFramer, REPLICA),
    (MasterFramer, MASTER),
    (ReportFramer, st.builds(Report, INT64)),
    (DefaultHaFramer, st.builds(DefaultHaTransfer, INT64, BODY)),
]


def encoded(frame) -> bytes:
    if isinstance(frame, Transfer | DefaultHaTransfer):
        return frame.encode_header(len(frame.body)) + frame.body
    return frame.encode()


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    found = []
    while data:
        size = chance.choice([1, 1, 2, 3, 11, 13, 19, 37, 400])
        found.append(data[:size])
        data = data[size:]
    return found


def read(framer, parts: list[bytes]) -> tuple[list, str]:
    """Frames of a stream, and the error of the bytes after them."""
    frames = []
    try:
        for part in parts:
            for frame in framer.feed(part):
                frames.append(frame)  # noqa: PERF402 - what came before an error counts
    except BadFrame as error:
        return frames, str(error)
    return frames, ""


@given(st.data(), st.randoms(use_true_random=False))
def test_any_split_gives_the_same_frames(data: st.DataObject, chance: random.Random) -> None:
    framer, kind = data.draw(st.sampled_from(KINDS))
    frames = data.draw(st.lists(kind, max_size=8))
    whole = b"".join(encoded(frame) for frame in frames)
    assert read(framer(), [whole]) == (frames, "")
    assert read(framer(), pieces(whole, chance)) == (frames, "")


@given(st.data(), st.binary(max_size=200), st.randoms(use_true_random=False))
def test_any_bytes_are_read_the_same_in_any_split(
    data: st.DataObject, noise: bytes, chance: random.Random
) -> None:
    framer, kind = data.draw(st.sampled_from(KINDS))
    frames = data.draw(st.lists(kind, max_size=3))
    whole = bytearray(b"".join(encoded(frame) for frame in frames) + noise)
    for _ in range(chance.randrange(4) if whole else 0):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    assert read(framer(), [bytes(whole)]) == read(framer(), pieces(bytes(whole), chance))


def test_bounds() -> None:
    """A frame that is too large is refused by its header, before its body arrives."""
    header = Transfer(0, 1, 0, 0).encode_header
    assert read(MasterFramer(), [header(BODY_MAX)[:8]]) == ([], "")
    for size in (-1, BODY_MAX + 1, (1 << 31) - 1):
        assert "no body" in read(MasterFramer(), [header(size)[:8]])[1]
        assert "no body" in read(DefaultHaFramer(), [DefaultHaTransfer(0).encode_header(size)])[1]
    state = (1).to_bytes(4, "big")
    for size in (-1, ENTRIES_READ_MAX * 12 + 1):
        frame = state + size.to_bytes(4, "big", signed=True)
        assert "no body" in read(MasterFramer(), [frame])[1]
    assert "no replica" in read(ReplicaFramer(), [(3).to_bytes(4, "big")])[1]
    assert "no master" in read(MasterFramer(), [(0).to_bytes(4, "big")])[1]


def test_replies_with_sense() -> None:
    whole = HandshakeReply(500, Epochs.from_pairs([(1, 0), (2, 300)])).encode()
    assert "the last entry" in read(MasterFramer(), [whole[:19] + b"\x07" + whole[20:]])[1]
    assert "follows" in read(MasterFramer(), [whole[:23] + b"\x02" + whole[24:]])[1]
    assert "no log ends" in read(MasterFramer(), [whole[:8] + b"\xff" * 8 + whole[16:]])[1]
    cut = whole[:7] + b"\x17" + whole[8:]
    assert "no epoch entries" in read(MasterFramer(), [cut])[1]
    frame = Transfer(-1, 1, 0, 0)
    assert read(MasterFramer(), [frame.encode_header(0)]) == ([frame], "")
    assert "no bytes lie" in read(MasterFramer(), [frame.encode_header(1) + b"x"])[1]


def test_the_newest_entries_are_sent() -> None:
    epochs = Epochs.from_pairs((number, number) for number in range(1500))
    (reply,) = MasterFramer().feed(HandshakeReply(5000, epochs).encode())
    assert isinstance(reply, HandshakeReply)
    assert len(reply.epochs) == ENTRIES_SENT_MAX
    assert reply.epochs.entries == epochs.entries[-ENTRIES_SENT_MAX:]

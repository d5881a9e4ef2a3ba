"""Plain frames of a master's stream: the native way has the results of the machines alone, for any
stream in any split."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.ha.network import Group
from tests.unit.broker.ha.test_service import pair
from tests.unit.net.ha.logs import MemoryLog, Shell
from tests.unit.pyx.test_walk import empty, put

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.replicated import Replicated
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.ha.default_ha import DefaultHaOptions, DefaultHaReplica
from turbopump.net.ha.frames import BODY_MAX, DefaultHaTransfer, HandshakeReply, Transfer
from turbopump.net.ha.replica import Replica, ReplicaOptions
from turbopump.pyx.ha_copy import BODIES_MAX, WRITE_MAX, PlainFrames
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

START = 100


class Native(Shell):
    """A shell that passes each read to `take` first, as a broker does."""

    taken = 0

    def feed(self, data: bytes, now_ms: int = 0) -> None:
        replica, frames = self.replica, self.replica.frames
        before = frames.confirm_offset
        taken = replica.take_plain_frames(data, now_ms)
        self.taken += taken
        for at, body in frames.bodies():
            self.log.append(at, bytes(body))
        frames.drop()
        if frames.confirm_offset > before:
            self.log.confirm = LogOffset(frames.confirm_offset)
        if taken and taken == len(data):
            self.sent += replica.due_report(now_ms) or b""
        else:
            self.do(replica.on_bytes(memoryview(data)[taken:], now_ms, taken=taken), now_ms)


class Stream:
    """Bytes of a master, most of them as they should be."""

    def __init__(self, chance: random.Random, *, switching: bool) -> None:
        self.chance, self.switching = chance, switching
        self.end, self.epoch, self.start = START, 1, 0
        self.announced: tuple[int, int] | None = None

    def frame(self, kind: str) -> bytes:
        chance, log_offset, epoch = self.chance, self.end, self.epoch
        body = (
            chance.randbytes(chance.choice([1, 7, 30, 200]))
            if kind not in ("heartbeat", "announced")
            else b""
        )
        if kind == "epoch":
            self.epoch, self.start = self.epoch + 1, self.end + chance.choice([0, 0, 3, 40])
            epoch = self.epoch
        elif kind == "announced":
            self.announced = (epoch + 1, self.end + chance.choice([3, 40]))
        elif kind == "offset":
            log_offset += chance.choice([-1, 1, 1 << 62, -log_offset - 1])
        elif kind == "old":
            epoch -= chance.choice([1, 2, 1 << 31])
        size = len(body)
        if kind == "size":
            size = chance.choice([-1, BODY_MAX + 1, (1 << 31) - 1, -(1 << 31)])
        self.end += len(body)
        if not self.switching:
            return DefaultHaTransfer(LogOffset(log_offset)).encode_header(size) + body
        confirm = chance.choice([-1, self.end - 30, self.end, self.end + 9])
        start = self.start
        if kind == "announced" and self.announced:  # bytes of this epoch follow
            epoch, start = self.announced
        elif self.announced and self.end >= self.announced[1] and chance.random() < 0.3:
            (self.epoch, self.start), self.announced = self.announced, None
        frame = Transfer(LogOffset(log_offset), epoch, LogOffset(start), LogOffset(confirm))
        return frame.encode_header(size) + body


def shells(*, switching: bool) -> tuple[Shell, Native]:
    """Two replicas with the same log, which have just connected."""
    found = []
    for kind in (Shell, Native):
        log = MemoryLog(bytearray(b"x" * START), Epochs.from_pairs([(1, 0)]))
        if switching:
            shell = kind(Replica(ReplicaOptions(2)), log)
            shell.do(shell.replica.follow("master:1", 1, 0))
            shell.do(shell.replica.on_connected(log.state(), 0))
            shell.feed(HandshakeReply(LogOffset(START), log.epochs).encode())
        else:
            shell = kind(DefaultHaReplica(DefaultHaOptions()), log)
            shell.do(shell.replica.follow("master:1", 0))
            shell.do(shell.replica.on_connected(log.end, 0))
        found.append(shell)
    return found[0], found[1]


def state(shell: Shell) -> tuple[object, ...]:
    machine, log = shell.replica, shell.log
    own = (machine.state, machine.reason, machine.log_end, machine.frames.confirm_offset)
    return (bytes(log.data), log.epochs, log.confirm, bytes(shell.sent), shell.closed, own)


KINDS = st.sampled_from(
    [
        *["body"] * 8,
        *["heartbeat"] * 3,
        *["epoch"] * 2,
        *["announced"] * 2,
        "offset",
        "old",
        "size",
        "noise",
    ]
)


@pytest.mark.parametrize("switching", [True, False])
@settings(max_examples=300)
@given(kinds=st.lists(KINDS, max_size=25), seed=st.integers(0, 1 << 32))
def test_any_stream_has_the_same_result(switching: bool, kinds: list[str], seed: int) -> None:
    chance = random.Random(seed)
    stream = Stream(chance, switching=switching)
    plain, native = shells(switching=switching)
    data = b"".join(
        chance.randbytes(50) if kind == "noise" else stream.frame(kind) for kind in kinds
    )
    sizes = chance.choice([[1, 3, 40], [36, 300], [1000], [1 << 20]])
    while data:
        size = chance.choice(sizes)
        part, data = data[:size], data[size:]
        plain.feed(part)
        native.feed(part)
        assert state(native) == state(plain)


@pytest.mark.parametrize("switching", [True, False])
def test_whole_frames_are_taken_up_to_the_limit(switching: bool) -> None:
    stream = Stream(random.Random(1), switching=switching)
    plain, native = shells(switching=switching)
    first, many = stream.frame("body"), [stream.frame("body") for _ in range(BODIES_MAX + 5)]
    for shell in (plain, native):
        shell.feed(first)
        shell.feed(b"".join(many))
    assert native.taken == len(b"".join(many[:BODIES_MAX]))
    assert state(native) == state(plain)


def frames_of(data: bytes, *sizes: int) -> PlainFrames:
    """Frames whose bodies are `data`, cut into pieces of these sizes and a rest."""
    frames = PlainFrames(switching=False)
    frames.expect()
    read, at = b"", 0
    for size in (*sizes, len(data) - sum(sizes)):
        read += DefaultHaTransfer(LogOffset(at)).encode_header(size) + data[at : at + size]
        at += size
    assert frames.take(read) == len(read)
    return frames


def records(count: int, body: bytes = b"b" * 40) -> bytes:
    region = empty(1 << 17)
    at = 0
    for _ in range(count):
        at = put(region, at, 0, body=body)
    return region.read(0, at)


@pytest.mark.parametrize("sizes", [(), (3,), (1, 1, 1, 200), (8,), (7, 300)])
def test_whole_records_are_written_however_frames_cut_them(sizes: tuple[int, ...]) -> None:
    data = records(5)
    memory, tail = bytearray(4096), Tail()
    tail.open(0, Region(memory))
    frames = frames_of(data, *sizes)
    assert frames.write(tail) and tail.end == len(data) and frames.count == 0
    assert memory == data + bytes(4096 - len(data))
    assert not frames.write(tail), "written once"


def test_all_else_is_left_to_the_log() -> None:
    data = records(5)
    for size, end, found in (
        (len(data), 0, data),  # fills the file
        (len(data) + 1, 2, data),  # reaches beyond it
        (4096, 0, data[:-1]),
        (4096, 0, data[:3]),
        (4096, 0, b"z" * 200),
        (1 << 17, 0, records(40, b"x" * 1000)),
    ):
        memory, tail = bytearray(size), Tail()
        tail.open(0, Region(memory))
        tail.end = end
        frames = frames_of(found)
        frames.log_end += end
        assert not frames.write(tail), (size, end)
        assert memory == bytes(size) and tail.end == end
        assert b"".join(body for _at, body in frames.bodies()) == found
    assert len(found) >= WRITE_MAX
    tail = Tail()
    assert not frames_of(data).write(tail), "no file is open"
    assert frames_of(data).bodies()[0][0] == 0


@pytest.mark.parametrize("piece", [0, 11, 700])
def test_the_log_of_a_replica_is_the_same(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    written: list[bool] = []
    append_frames = Replicated.append_frames
    for is_native in (True, False):
        chance = random.Random(piece)

        def append(log: Replicated, frames: PlainFrames, is_native: bool = is_native) -> bool:
            done = is_native and append_frames(log, frames)
            written.append(done)
            return done

        monkeypatch.setattr(Replicated, "append_frames", append)
        group = Group(tmp_path / str(is_native))
        master, replica = pair(group)
        group.network.piece = piece
        reports: list[bytes] = []
        send = replica.shell.send
        replica.shell.send = lambda number, buffers, send=send, reports=reports: (  # type: ignore[method-assign,misc]
            reports.extend(map(bytes, buffers)),
            send(number, buffers),
        )[1]
        for _ in range(60):
            responses = [
                master.send(chance.randbytes(chance.choice([1, 100, 900])))
                for _ in range(chance.randrange(4))
            ]
            group.network.run()
            assert responses == [[PutStatus.PUT_OK]] * len(responses)
        assert replica.log_bytes() == master.log_bytes()
        assert replica.log.confirm == replica.log.end == master.log.confirm
        results.append((replica.log_bytes(), reports, replica.read()))
        group.close()
    assert results[0] == results[1]
    assert piece == 11 or any(written)

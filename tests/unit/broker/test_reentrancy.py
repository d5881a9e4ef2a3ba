"""Native code calls Python, which closes the connection being read or moves memory in use.

Each test acts in the middle of a call. `make asan` runs them on instrumented kernels, where every
bytes object has its own allocation and a pointer kept across the call is reported.
"""

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lane.world import Driven, frame_of, make
from tests.unit.broker.traffic.test_fast_path import SEND, code, pull_frame, send
from tests.unit.net.transport.test_tls import pair, pump

from turbopump.broker.tables.offsets import OffsetTable
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.lookup import Lookup
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, PutStatus
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, encode, new_request
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.pyx.columns import Decoder
from turbopump.pyx.fast import CARRY_MAX
from turbopump.pyx.load import Load

HOOKS = ["frame", "write_rest", "settled", "met", "is_drained"]
STORE_HOOKS = {
    "units_of": (Lookup, "units_of"),
    "log_of": (CommitLog, "region_of"),
    "dispatch": (Store, "_run_dispatch"),
    "commit": (OffsetTable, "commit"),
}
COUNT = 8
"""Number of 2,000-byte messages in the store: more than a log file holds; two more than a queue
file holds."""


class Cut(Driven):
    """A connection that does `acts[name]()`, once, when `name` is called."""

    acts: dict[str, Callable[[], None]]

    def end(self) -> None:
        """End as a hub does when it closes a peer."""
        self.closed = True
        self.end_fast()

    def frame(self, view: memoryview) -> bool:
        # A subclass may return True after an end: the connection itself must check that it is open.
        super().frame(view)
        return True


def hooked(name: str, original: Callable[..., Any], acts: dict[str, Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        act = acts.pop(name, None)
        if act is not None:
            act()
        return original(*arguments)

    return call


@pytest.fixture
def driven(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cut]:
    """A connection whose next sends and pulls are native."""
    mode, turn = getattr(request, "param", (FlushMode.ASYNC_FLUSH, False))
    acts: dict[str, Callable[[], None]] = {}
    for name, (owner, method) in STORE_HOOKS.items():
        monkeypatch.setattr(owner, method, hooked(name, getattr(owner, method), acts))
    for name in HOOKS:
        monkeypatch.setattr(Cut, name, hooked(name, getattr(Cut, name), acts))
    with tempfile.TemporaryDirectory() as folder:
        connection = Cut(make(folder, mode), turn=turn)
        connection.acts = acts
        for opaque in range(COUNT):
            send(connection, opaque, body=b"b" * 2000)
        connection.feed(pull_frame(100), 1 << 20)
        connection.pulled.let_go()
        connection.blocks_at = 1 << 40
        yield connection
        acts.clear()
        connection.world.close()
        connection.near.close()
        connection.far.close()


def other_frame(opaque: int) -> bytes:
    """A request that Python handles."""
    request = new_request(RequestCode.GET_MAX_OFFSET, fields={"topic": "Plain", "queueId": "0"})
    request.opaque = opaque
    return b"".join(bytes(part) for part in encode(request))


def committing_pull(opaque: int) -> bytes:
    header = PullMessageRequest("live", "Plain", 0, 0, 32, 1, 1, 0, 0)
    request = new_request(RequestCode.PULL_MESSAGE, fields=write_header(header))
    request.opaque, request.codec = opaque, Codec.JSON
    return b"".join(bytes(part) for part in encode(request))


def pour(driven: Driven, data: bytes) -> None:
    """Feed `data` without reading the responses; only the connection keeps the received bytes."""
    while data:
        size = len(driven.get_buffer(-1))
        driven.get_buffer(-1)[: min(size, len(data))] = data[:size]
        driven.buffer_updated(min(size, len(data)))
        data = data[size:]


def into_own(driven: Driven, data: bytes) -> None:
    """Handle data in the connection's own area, as after its peer was blocked."""
    driven.blocked = True
    pour(driven, data[:CARRY_MAX])
    driven.blocked = False
    pour(driven, data[CARRY_MAX:])


def fill_socket(driven: Driven) -> None:
    """Fill the socket, so that later responses go to the transport."""
    pour(driven, b"".join(pull_frame(opaque) for opaque in range(10_000, 10_060)))
    assert driven.rest
    driven.pulled.let_go()


def pulls(first: int) -> bytes:
    """Enough pulls that some are carried over from a read to the next."""
    return b"".join(pull_frame(first + number) for number in range(200))


def served(driven: Driven) -> int:
    return driven.pulled.found_count + driven.lane.send_count


def test_a_handler_that_ends_its_connection_is_the_last_one(driven: Cut) -> None:
    driven.acts["frame"] = driven.end
    into_own(driven, b"".join(other_frame(opaque) for opaque in range(200, 400)))
    assert not driven.acts
    assert [opaque for opaque in driven.responses if opaque >= 200] == [200]
    assert driven.area.in_use == 0


STEPS = ["units_of", "log_of", "commit", "met"]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        *((name, False) for name in STEPS),
        *((name, True) for name in [*STEPS, "write_rest", "is_drained"]),
    ],
)
def test_a_reader_cut_while_its_pull_is_served(driven: Cut, name: str, full: bool) -> None:
    """Without reading: _check_unread and _cut_the_slowest run when a response is written."""
    if full:
        fill_socket(driven)
    before = served(driven)
    driven.met_version = -1
    driven.acts[name] = driven.end
    into_own(driven, committing_pull(199) + pulls(200))
    assert not driven.acts
    assert served(driven) <= before + 1, "later requests are not served"
    assert driven.area.in_use == 0


@pytest.mark.parametrize("name", ["dispatch", "write_rest", "is_drained"])
def test_a_sender_cut_while_its_sends_are_answered(driven: Cut, name: str) -> None:
    fill_socket(driven)
    before = served(driven)
    driven.acts[name] = driven.end
    frames = b"".join(frame_of(SEND, opaque) for opaque in range(200, 2200))
    into_own(driven, frames[: 64 * CARRY_MAX])
    assert not driven.acts
    assert before < served(driven) < before + 2000
    assert driven.area.in_use == 0


@pytest.mark.parametrize("driven", [(FlushMode.ASYNC_FLUSH, True)], indirect=True)
def test_a_peer_cut_while_answers_of_the_read_before_are_written(driven: Cut) -> None:
    fill_socket(driven)
    large = frame_of({**SEND, "body": b"x" * 3 * CARRY_MAX}, 201)
    driven.blocked = True
    pour(driven, frame_of(SEND, 200) + large[: 2 * CARRY_MAX])
    driven.blocked = False
    driven.go_on()
    before = served(driven)
    driven.acts["write_rest"] = driven.end
    pour(driven, large[2 * CARRY_MAX :])
    assert not driven.acts
    assert served(driven) == before
    driven.end_turn()
    assert driven.area.in_use == 0


def test_a_request_of_a_blocked_peer_is_not_handled_twice(driven: Cut) -> None:
    """A transport may call resume_writing within a write."""
    driven.acts["frame"] = driven.go_on
    into_own(driven, b"".join(other_frame(opaque) for opaque in range(200, 400)))
    driven.end_turn()
    assert all(len(driven.responses[opaque]) == 1 for opaque in range(200, 400))


def test_a_frame_that_python_keeps_keeps_its_memory(driven: Cut) -> None:
    kept: list[memoryview] = []
    frame = frame_of({**SEND, "body": b"k" * 3 * CARRY_MAX, "topic": "Kept"}, 200)
    driven.frame = lambda view: kept.append(view) or True  # type: ignore[method-assign]
    driven.feed(frame, 20_000)
    assert kept[0] == frame


def test_readers_may_be_noted_anew_while_a_queue_is_opened(driven: Cut) -> None:
    """The queues of a single reader, and of all readers, are moved."""

    def note_anew() -> None:
        for number in range(40):
            serve(driven, b"group %d" % number, 4)
        serve(driven, b"live", 900)

    driven.acts["units_of"] = note_anew
    driven.feed(pull_frame(200), 1 << 20)
    assert not driven.acts
    assert len(decode(driven.responses[200][0]).body) == len(decode(driven.responses[100][0]).body)


def serve(driven: Cut, group: bytes, queue_limit: int, codes: Any = None) -> None:
    driven.pulled.serve(
        group,
        b"Plain",
        queue_limit,
        readers=(0, 0),
        topic_sys_flag=0,
        group_sys_flag=0,
        sub_version=5,
        subscription=None,
        expression_type=None,
        filter=None,
        codes=codes,
        until_ms=1 << 62,
    )


def test_mappings_may_be_given_up_when_a_pull_commits(driven: Cut) -> None:
    def give_up() -> None:
        driven.pulled.let_go()
        driven.world.broker.store.close(driven.world.now_ms)

    driven.acts["commit"] = give_up
    driven.feed(committing_pull(200), 1 << 20)
    assert not driven.acts
    assert decode(driven.responses[200][0]).body == decode(driven.responses[100][0]).body


@pytest.mark.parametrize("driven", [(FlushMode.SYNC_FLUSH, False)], indirect=True)
@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_is_given_may_hold_others(driven: Cut, fails: bool) -> None:
    """A response held within the callback must be neither overwritten nor lost."""
    driven.world.disk.hold()
    waiting = [200, 201] if fails else [200]
    for opaque in waiting:
        send(driven, opaque)
    pending = driven.lane.pending
    assert pending.count == len(waiting)
    sends = driven.lane.send_count
    driven.acts["settled"] = lambda: pour(
        driven, b"".join(frame_of(SEND, opaque) for opaque in range(300, 304))
    )
    if fails:
        pending.fail(PutStatus.SERVICE_NOT_AVAILABLE)
        assert pending.count == 4
    driven.world.disk.release()
    assert driven.lane.send_count == sends + 4
    assert [code(driven, opaque) for opaque in waiting] == ([14, 14] if fails else [0])
    assert [code(driven, opaque) for opaque in range(300, 304)] == [0] * 4
    assert pending.count == 0


class Growing(frozenset[int]):
    """A set whose length is 1 but which yields 10,000 elements."""

    def __iter__(self) -> Iterator[int]:
        yield from range(10_000)


def test_a_table_that_grows_while_it_is_read_is_read_whole_or_refused(driven: Cut) -> None:
    serve(driven, b"live", 4, Growing([1]))
    Decoder(["epoch"], epochs=Pairs([1]))
    with pytest.raises(ValueError, match="template"):
        Load(b"", Rows([1]), b"", connections=1)


class Pairs(Growing):
    def __iter__(self) -> Iterator[Any]:
        return iter([(number, number) for number in range(10_000)])


class Rows(Growing):
    def __iter__(self) -> Iterator[Any]:
        return iter([(0, 0, 0, 0, 0, 0, 0, 0)] * 10_000)


def test_a_reader_whose_filter_cannot_be_noted_keeps_the_one_it_had(driven: Cut) -> None:
    serve(driven, b"live", 4, frozenset([1]))
    with pytest.raises(TypeError):
        serve(driven, b"live", 4, [1, "no code"])
    found = driven.pulled.found_count
    driven.feed(pull_frame(200), 1 << 20)
    assert driven.pulled.found_count == found, "no message has such a tag: it is for Python"


@pytest.mark.parametrize("turn", [False, True])
def test_bytes_python_encrypts_before_the_end_of_a_turn_follow_the_answers(turn: bool) -> None:
    """TLS records are numbered: the peer refuses them in a different order."""
    server, client = pair(TlsSettings(), ClientTlsSettings())
    pump(server, client)
    with tempfile.TemporaryDirectory() as folder:
        driven = Driven(make(folder, FlushMode.ASYNC_FLUSH), turn=turn)
        send(driven, 1)  # the first of its queue is for Python
        driven.go_fast(
            driven.lane,
            driven.pulled,
            driven.near.fileno(),
            driven.peer.host,
            driven.area,
            1 << 20,
            driven.turn,
            server,
        )
        room = memoryview(bytearray(1 << 16))
        for opaque in (2, 3):
            data = client.sealed(frame_of(SEND, opaque))
            driven.get_buffer(-1)[: len(data)] = data
            driven.buffer_updated(len(data))
            driven.near.sendall(server.sealed(b"late"))
            while driven.ended:
                driven.ended.pop()()
            client.feed(driven.far.recv(1 << 16))
            received = bytes(room[: client.read_into(room)])
            size = 4 + int.from_bytes(received[:4], "big")
            assert (decode(received[:size]).opaque, received[size:]) == (opaque, b"late")
        assert driven.lane.send_count == 2
        driven.world.close()
        driven.near.close()
        driven.far.close()

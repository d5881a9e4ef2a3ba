"""The native path against the Python path: the same bytes give the same answers and the same files.

Two brokers get the same requests at the same times: one over a connection with a lane, cut into
reads anywhere, the other by its handlers alone.
"""

import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import World, offset_json
from tests.unit.broker.replicas import SYNC_MASTER, Replicas

from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.broker.tables.statistics import GROUP_GET_NUMS, GROUP_GET_SIZE
from turbopump.engine.later import Later
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.ha.acks import Mode
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.receiving import Area
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, Command, decode, encode, new_request
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, write_send
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.hosts import pack
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import MULTI_TAG, TopicConfig
from turbopump.pyx.fast import FastConnection, Turn

ADDRESS = "127.0.0.1:50000"
SMALL = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=200\nmaxMessageSize=4000\n"
RECEIVE_MAX = 1 << 20
FRAME_MAX = 1 << 20


class Driven(FastConnection):
    """A connection without a loop: the socket is read at once, `rest` is what its transport has.

    `turn`: answers wait for `end_turn`, which `feed` does after each third read and at its end.
    """

    def __init__(self, world: World, *, turn: bool = False) -> None:
        self.world = world
        self.peer = Peer(ADDRESS, pack(ADDRESS), None)  # type: ignore[arg-type]
        self.near, self.far = socket.socketpair()
        self.answers: dict[int, list[bytes]] = {}
        self.closed, self.held = False, 0
        self.rest = self.partial = b""
        self.views: list[Any] = []
        self.blocks_at = 1 << 30
        broker = world.broker
        self.ended: list[Callable[[], None]] = []
        world.soon = self.soon
        self.fast_lane = fast = broker.fast
        self.lane, self.pulled = fast.lane, fast.pulls
        broker.topics.on_change = fast.forget
        fast.start(broker.store_host)
        area = self.area = Area(RECEIVE_MAX)
        self.turn = Turn(self.lane, self.ended.append) if turn else None
        descriptor = self.near.fileno()
        self.go_fast(
            self.lane, fast.pulls, descriptor, self.peer.host, area, FRAME_MAX, self.turn
        )  # fmt: skip

    def soon(self, work: Callable[[], None]) -> None:
        """The store commits at once, as it does for handlers; ticks notify the pulls that wait."""
        broker = self.world.broker
        if work not in (broker.store.tell_arrivals, broker.holds.sweep):
            work()

    def end_turn(self) -> None:
        """As the loop at the end of its turn."""
        while self.ended:
            self.ended.pop()()
        self.collect()

    def begins(self) -> bool:
        return True

    def gives(self, size: int) -> bool:
        return True

    def give_way(self) -> None:
        """There are no others."""

    def took(self, size: int) -> None:
        """As give_way."""

    def feed(self, data: bytes, cut: int) -> None:
        """Bytes as they may arrive: `cut` at a time."""
        count = 0
        while data and not self.closed:
            room = self.get_buffer(-1)
            size = min(len(room), cut, len(data))
            room[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]
            self.collect()
            count += 1
            if count % 3 == 0:
                self.end_turn()
        self.end_turn()

    def collect(self) -> None:
        """Take over what was written to the socket."""
        written = b""
        self.far.setblocking(False)
        try:
            while part := self.far.recv(1 << 20):
                written += part
        except BlockingIOError:
            pass
        written, self.rest = self.partial + written + self.rest, b""
        self.partial = take(self.answers, written)

    def frame(self, view: memoryview) -> bool:
        self.met_version = -1
        handle(self.world, self.peer, decode(view), self.answers)
        return True

    def bad_length(self, rest: memoryview) -> None:
        self.closed = True

    def failed(self, error: Exception) -> None:
        raise error

    def end_read(self) -> None:
        pass

    def met(self, version: int, language: int) -> None:
        self.peer.version = version

    def is_drained(self) -> bool:
        return not self.rest

    def write_rest(self, buffers: list[bytes]) -> None:
        self.views += buffers
        self.rest += b"".join(buffers)
        self.blocked = len(self.rest) >= self.blocks_at

    def hold(self, count: int) -> None:
        self.held += count

    def settled(self, count: int) -> bool:
        self.held -= count
        return not self.closed

    def clock(self) -> float:
        return 1.0

    def later(self, callback: Callable[[], None]) -> None:
        self.ended.append(callback)


def take(answers: dict[int, list[bytes]], written: bytes) -> bytes:
    """Answers by opaque: their order is free. Returns the beginning of an incomplete one."""
    at = 0
    while len(written) - at >= 4:
        size = 4 + int.from_bytes(written[at : at + 4], "big")
        if len(written) - at < size:
            break
        frame = written[at : at + size]
        answers.setdefault(decode(frame).opaque, []).append(frame)
        at += size
    return written[at:]


def handle(world: World, peer: Peer, request: Command, answers: dict[int, list[bytes]]) -> None:
    """A request through the handlers, as the connection gives it to them."""
    peer.version = request.version
    answer = world.table.dispatch(request, peer, world.now_ms)
    if isinstance(answer, Later):
        answer.then(partial(note, request, answers))
    else:
        note(request, answers, answer)


def note(request: Command, answers: dict[int, list[bytes]], answer: Command | None) -> None:
    """An answer came."""
    if answer is not None and not request.is_oneway:
        answer.opaque = request.opaque
        take(answers, b"".join(bytes(part) for part in encode(answer)))


TOPICS = [
    "Plain",
    "Other",
    "Inner",
    "Multi",
    "Compact",
    "%RETRY%group",
    "TBW102",
    "New-1",
    "bad name",
]
names = st.sampled_from(
    ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "POP_CK", "MSG_REGION", "INNER_NUM",
     "TIMER_DELAY_SEC", "INNER_MULTI_DISPATCH", "own", "ünï", ""]
)  # fmt: skip
values = st.sampled_from(["true", "false", "1", "0", "a b", "täg", "x" * 200, "", "7F00\x01"])
properties = st.one_of(
    st.just("UNIQ_KEY\x017F0000010000558C00000000000000EE\x02WAIT\x01false"),
    st.lists(st.tuples(names, values), max_size=4).map(
        lambda pairs: "UNIQ_KEY\x01U\x02" + "".join(f"{n}\x01{v}\x02" for n, v in pairs)
    ),
    st.text(alphabet="a\x01\x02é\x00", max_size=12),
    st.none(),
)


def replaced(batch: bytes, size: int, at: int) -> bytes:
    """A batch with an element that says another size."""
    return batch[:at] + size.to_bytes(4, "big", signed=True) + batch[at + 4 :]


SQL = "KEYS CONTAINS 'k2' OR (TAGS = 'TagA' AND WAIT IN ('true'))"
bodies = st.one_of(
    st.binary(min_size=1, max_size=300),
    st.integers(0, 4200).map(lambda size: b"b" * size),
    st.lists(
        st.tuples(st.integers(0, 3), st.binary(max_size=60), st.just(b"KEYS\x01k\x02")), max_size=5
    ).map(encode_batch),
    st.tuples(st.sampled_from([-8, 0, 22, 1 << 30]), st.sampled_from([0, 23])).map(
        lambda damage: replaced(encode_batch([(0, b"x", b"")] * 2), *damage)
    ),
)
sends = st.fixed_dictionaries(
    {
        "code": st.sampled_from([10, 310, 320]),
        "codec": st.sampled_from(Codec),
        "topic": st.sampled_from(["Plain", "Plain", *TOPICS]),
        "queue_id": st.sampled_from([0, 0, 1, 3, 4, -1, 99]),
        "sys_flag": st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12, 64, 128]),
        "flag": st.integers(-5, 5),
        "reconsume_times": st.sampled_from([None, 0, 3]),
        "batch": st.sampled_from([None, None, False, True]),
        "oneway": st.sampled_from([False, False, False, True]),
        "properties": properties,
        "body": bodies,
        "version": st.sampled_from([513, 400]),
    }
)
plain = st.fixed_dictionaries(
    {
        "code": st.sampled_from([10, 310]), "codec": st.sampled_from(Codec),
        "topic": st.sampled_from(["Plain", "Other"]), "queue_id": st.sampled_from([0, 0, 1]),
        "sys_flag": st.sampled_from([0, 1]), "flag": st.just(0), "reconsume_times": st.just(None),
        "batch": st.just(None), "oneway": st.just(False),
        "properties": st.sampled_from([
            "UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02TAGS\x01TagA\x02",
            "UNIQ_KEY\x017F0000010000558C00000000000000EE\x02KEYS\x01k1 k2",
        ]),
        "body": st.binary(min_size=1, max_size=900), "version": st.just(513),
    }
)  # fmt: skip
changes = st.sampled_from(
    ["time", "back", "tick", "other code", "delete", "narrow", "readonly", "region", "heartbeat",
     "reset", "ban", "damage", "slave read"]
)  # fmt: skip
of_replicas = st.sampled_from(["ack", "ack", "ack", "leave", "too few", "wait", "end"])
pulls = st.fixed_dictionaries(
    {
        "codec": st.sampled_from(Codec),
        "version": st.sampled_from([513, 400]),
        "header": st.builds(
            PullMessageRequest,
            consumer_group=st.sampled_from(["live", "live", "live", "tagged", "sql", "new group"]),
            topic=st.sampled_from(["Plain", "Plain", "Other", "Inner", "None"]),
            queue_id=st.sampled_from([0, 0, 0, 1, 3, 9]),
            queue_offset=st.sampled_from([0, 0, 0, 1, 2, 3, 9, 12]),
            max_msg_nums=st.sampled_from([32, 32, 2, 1, 0, 40]),
            sys_flag=st.sampled_from([0, 0, 1, 4, 4, 5]),
            commit_offset=st.integers(-1, 3),
            suspend_timeout_millis=st.just(0),
            sub_version=st.sampled_from([0, 0, 5, 99]),
            subscription=st.sampled_from([None, "*", "TagA", "TagA || b", "none", SQL, "TAGS ="]),
            expression_type=st.sampled_from([None, "TAG", "TAG", "SQL92", "SQL92"]),
        ),
    }
)
plain_pulls = st.fixed_dictionaries(
    {
        "codec": st.sampled_from(Codec),
        "version": st.just(513),
        "header": st.builds(
            PullMessageRequest,
            consumer_group=st.sampled_from(["live", "tagged", "sql"]),
            topic=st.sampled_from(["Plain", "Other"]),
            queue_id=st.sampled_from([0, 0, 1]),
            queue_offset=st.sampled_from([0, 0, 1, 2]),
            max_msg_nums=st.sampled_from([32, 2]),
            sys_flag=st.sampled_from([0, 0, 1]),
            commit_offset=st.just(1),
            suspend_timeout_millis=st.just(0),
            sub_version=st.just(0),
        ),
    }
)
steps = st.integers(0, 21).flatmap(
    lambda number: (
        plain
        if number < 8
        else plain_pulls
        if number < 14
        else pulls
        if number < 17
        else sends
        if number < 20
        else changes
    )
)


def frame_of(step: dict[str, Any], opaque: int) -> bytes:
    if "header" in step:
        command = new_request(RequestCode.PULL_MESSAGE, fields=write_header(step["header"]))
        return finish(command, step, opaque)
    header = SendMessageRequest(
        producer_group="producers", topic=step["topic"], default_topic="TBW102",
        default_topic_queue_nums=4, queue_id=step["queue_id"], sys_flag=step["sys_flag"],
        born_timestamp=1_600_000_000_000 + opaque, flag=step["flag"],
        properties=step["properties"], reconsume_times=step["reconsume_times"],
        batch=step["batch"],
    )  # fmt: skip
    command = new_request(
        step["code"], fields=write_send(step["code"], header), body=step["body"],
        oneway=step["oneway"],
    )  # fmt: skip
    return finish(command, step, opaque)


def finish(command: Command, step: dict[str, Any], opaque: int) -> bytes:
    command.opaque, command.codec, command.version = opaque, step["codec"], step["version"]
    return b"".join(bytes(part) for part in encode(command))


def change(world: World, step: str) -> None:
    """What is done to a broker beside sends."""
    broker = world.broker
    if step == "time":
        world.now_ms += 7
    elif step == "back":
        world.now_ms -= 3
    elif step == "tick":
        world.pass_time(1100)
    elif step == "delete":
        broker.topics.delete("Plain", world.now_ms)
        broker.store.delete_topic("Plain")
    elif step == "narrow":
        broker.topics.put(TopicConfig("Plain", 1, 1), world.now_ms)
    elif step == "readonly":
        world.config.broker_permission = 10 - world.config.broker_permission
        reconfigure(world)
    elif step == "region":
        world.config.region_id = "Elsewhere"
        world.config.trace_on = not world.config.trace_on
        reconfigure(world)
    elif step == "heartbeat":
        subscribe(world, "live", "TagA", 7)
        subscribe(world, "sql", "KEYS IS NULL", 7, "SQL92")
    elif step == "reset":
        broker.offsets.set_reset("live", "Plain", 0, QueueOffset(1), world.now_ms)
    elif step == "ban":
        mask = FORBIDDEN_READ - broker.groups.forbidden("live", "Plain")
        broker.groups.set_forbidden("live", "Plain", mask, world.now_ms)
    elif step == "damage":
        damage(world)
    elif step == "slave read":
        world.config.slave_read_enable = not world.config.slave_read_enable
        reconfigure(world)


def change_replicas(replicas: Replicas, step: str) -> None:
    """What a master's replica does, and what becomes of the reign."""
    if step == "ack":
        replicas.ack()
    elif step == "leave":
        replicas.leave()
        replicas.join()
    elif step == "too few":
        replicas.too_few(replicas.leader.rules.mode is Mode.PLAIN)
    elif step == "wait":
        replicas.world.pass_time(replicas.world.config.replication.slave_timeout_ms)
    elif step == "end" and replicas.log.damage is None:  # a damaged log cannot be led
        replicas.end()
        replicas.begin()


def damage(world: World) -> None:
    """A byte of the second record is another one now."""
    found = world.broker.store.units("Plain", 0, 1, 1)
    if found:
        with Path(world.config.store.root, "commitlog", "0" * 20).open("r+b") as file:
            file.seek(found[0].log_offset + 90)
            file.write(b"?")


def subscribe(world: World, group: str, wanted: str, version: int, kind: str = "TAG") -> None:
    topics = [parse_subscription(topic, wanted, kind, version) for topic in ("Plain", "Other")]
    data = ConsumerData(group, subscription_data_set=topics)
    world.broker.consumers.register(world.client, "client", data, world.now_ms)
    for _ in world.broker.filters.register(group, topics, world.now_ms):
        pass


def reconfigure(world: World) -> None:
    world.broker.fast.reconfigure()


def make(folder: str, mode: FlushMode, sizes: str = SMALL) -> World:
    world = World(Path(folder), f"{sizes}flushDiskType={mode.value}\n")
    for topic in (
        TopicConfig("Plain", 4, 4),
        TopicConfig("Other", 2, 4, order=True),
        TopicConfig("Inner", 4, 4, attributes={"queue.type": "BatchCQ"}),
        TopicConfig("Multi", 4, 4, topic_filter_type=MULTI_TAG),
        TopicConfig("Compact", 4, 4, attributes={"cleanup.policy": "COMPACTION"}),
    ):
        world.broker.topics.put(topic, world.now_ms)
    subscribe(world, "live", "*", 5)
    subscribe(world, "tagged", "TagA", 5)
    subscribe(world, "sql", SQL, 5, "SQL92")
    return world


def files_of(folder: str) -> dict[str, bytes]:
    """Log, queues and index; names of index files are the time of day."""
    found: dict[str, bytes] = {}
    for part in ("commitlog", "consumequeue", "index"):
        for path in sorted(Path(folder, part).rglob("*")):
            if path.is_file():
                name = str(path.relative_to(folder)) if part != "index" else f"index {len(found)}"
                found[name] = path.read_bytes()
    return found


def counted(world: World) -> tuple[object, ...]:
    statistics = world.broker.store.statistics
    total = statistics.total
    offsets = offset_json(world.broker.offsets)
    del offsets["dataVersion"]
    world.broker.statistics.sample(world.now_ms)
    got = [
        world.broker.statistics.find(name, f"{topic}@{group}")
        for name in (GROUP_GET_NUMS, GROUP_GET_SIZE)
        for topic in TOPICS
        for group in ("live", "tagged", "sql")
    ]
    return (
        (total.put_count, total.put_size, total.found_count, total.transferred_count),
        sorted(statistics.put_count_by_topic.items()),
        offsets,
        got,
    )


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(steps, min_size=15, max_size=45),
    st.sampled_from([1 << 20, 1000, 77]),
    st.sampled_from(FlushMode),
    st.booleans(),
    st.sampled_from(["", "accessMessageInMemoryMaxRatio=0\n"]),
)
def test_both_paths_do_the_same(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool, properties: str
) -> None:
    compare(plan, cut, mode, turn, properties)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(plain | of_replicas | steps, min_size=15, max_size=45),
    st.sampled_from([1 << 20, 77]),
    st.sampled_from(FlushMode),
    st.booleans(),
)
def test_both_paths_wait_for_replicas(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool
) -> None:
    compare(plan, cut, mode, turn, SYNC_MASTER, replicated=True)


KEYED = "UNIQ_KEY\x017F0000010000558C00000000000000EE\x02"


def send_to(queue_id: int, properties: str = KEYED) -> dict[str, Any]:
    return {
        "code": 10, "topic": "Plain", "queue_id": queue_id, "body": b"x", "sys_flag": 0,
        "flag": 0, "reconsume_times": None, "batch": None, "oneway": False,
        "codec": Codec.JSON, "version": 513, "properties": properties,
    }  # fmt: skip


def pull_of(queue_id: int) -> dict[str, Any]:
    header = PullMessageRequest("live", "Plain", queue_id, 0, 32, 0, 1, 0, 0)
    return {"codec": Codec.JSON, "version": 513, "header": header}


@settings(max_examples=1)
@given(st.none())
def test_past_findings(_nothing: None) -> None:
    """Of the property. Where a reader was in a queue that its topic lost since was forgotten with
    the queue; the next id was another one, where too few replicas were in sync; no reign could
    begin on a log that was damaged (the length of a topic, behind a body of two bytes); what was no
    batch was called illegal where nothing might be written."""
    queues, sent = [0, 0, 1, 1], {**send_to(0), "body": b"xx"}
    reads = [*map(send_to, queues), *map(pull_of, queues * 2), "narrow", pull_of(0), pull_of(0)]
    compare(reads, 1 << 20, FlushMode.ASYNC_FLUSH, False, "")
    for plan in (
        [*[send_to(0)] * 3, "too few", send_to(0, ""), "too few", send_to(0, ""), "ack"],
        [*[sent] * 3, "damage", pull_of(0), sent, "end", sent, pull_of(0)],
        [send_to(0), "ack", "too few", {**send_to(0, ""), "code": 320, "batch": True}],
    ):
        compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False, SYNC_MASTER, replicated=True)


def compare(
    plan: list[Any],
    cut: int,
    mode: FlushMode,
    turn: bool,
    properties: str,
    replicated: bool = False,
) -> None:
    """Carry out a plan on both paths."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        texts = f"{SMALL}{properties}"
        native, python = make(one, mode, texts), make(two, mode, texts)
        replicas = [Replicas(world) for world in (native, python)] if replicated else []
        driven = Driven(native, turn=turn)
        peer = Peer(ADDRESS, pack(ADDRESS), None)  # type: ignore[arg-type]
        answers: dict[int, list[bytes]] = {}
        pending = b""
        for opaque, step in enumerate(plan):
            if isinstance(step, dict):
                data = frame_of(step, opaque)
            elif step == "other code":
                request = new_request(
                    RequestCode.GET_MAX_OFFSET, fields={"topic": "Plain", "queueId": "0"}
                )
                request.opaque = opaque
                data = b"".join(bytes(part) for part in encode(request))
            else:
                assert isinstance(step, str)
                driven.feed(pending, cut)
                pending = b""
                change(native, step)
                change(python, step)
                for each in replicas:
                    change_replicas(each, step)
                continue
            pending += data
            handle(python, peer, decode(data), answers)
        driven.feed(pending, cut)
        event(f"sends natively: {min(driven.lane.send_count, 9) // 3 * 3} or more")
        event(f"pulls natively: {min(driven.pulled.found_count, 9) // 3 * 3} or more")
        event(f"answers wait at the end: {min(driven.lane.pending.count, 3)}")
        for each in replicas:
            each.end()
        driven.collect()
        assert driven.held == driven.lane.pending.count == 0
        check_same(driven, answers, plan, (one, two))
        assert driven.peer.version == peer.version
        one_count, two_count = counted(native), counted(python)
        assert one_count == two_count, (one_count, two_count)
        native.close()
        python.close()
        driven.near.close()
        driven.far.close()
        assert files_of(one) == files_of(two)


def check_same(
    driven: Driven, answers: dict[int, list[bytes]], plan: list[Any], folders: tuple[str, str]
) -> None:
    """The same answers; a refusal names the damaged file, of folders whose names are as long."""
    for frames in driven.answers.values():
        frames[:] = [frame.replace(folders[0].encode(), folders[1].encode()) for frame in frames]
    both = driven.answers.keys() | answers.keys()
    differ = [each for each in both if driven.answers.get(each) != answers.get(each)]
    assert not differ, [
        (plan[each], driven.answers.get(each), answers.get(each)) for each in differ
    ]

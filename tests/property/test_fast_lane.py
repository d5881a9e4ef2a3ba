"""The native path against the Python path: the same bytes give the same answers and the same files.

Two brokers get the same requests at the same times: one over a connection with a lane, cut into
reads anywhere, the other by its handlers alone.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.requests import HALF, of_replicas, of_transactions, plain, steps
from tests.lane.world import (
    ADDRESS,
    SMALL,
    TOPICS,
    Driven,
    end_of,
    frame_of,
    handle,
    make,
    subscribe,
)
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World, offset_json
from tests.unit.broker.replicas import SYNC_MASTER, Replicas

from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.broker.tables.statistics import GROUP_GET_NUMS, GROUP_GET_SIZE
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.ha.acks import Mode
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, encode, new_request
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.topics import TopicConfig


def change(world: World, step: str) -> None:
    """Make a change to a broker beside sends."""
    broker = world.broker
    if step == "time":
        world.now_ms += 7
    elif step == "back":
        world.now_ms -= 3
    elif step == "tick":
        world.pass_time(1100)
    elif step == "long":
        world.pass_time(6500)
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
        mask = FORBIDDEN_READ - broker.groups.forbidden_mask("live", "Plain")
        broker.groups.set_forbidden("live", "Plain", mask, world.now_ms)
    elif step == "damage":
        damage(world)
    elif step == "slave read":
        world.config.slave_read_enable = not world.config.slave_read_enable
        reconfigure(world)


def change_replicas(replicas: Replicas, step: str) -> None:
    """Make a change of a master's replica, or of its term."""
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
    """Change a byte of the second record."""
    found = world.broker.store.units("Plain", 0, 1, 1)
    if found:
        with Path(world.config.store.root, "commitlog", "0" * 20).open("r+b") as file:
            file.seek(found[0].log_offset + 90)
            file.write(b"?")


def reconfigure(world: World) -> None:
    world.broker.fast.reconfigure()


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
        world.broker.statistics.find_windows(name, f"{topic}@{group}")
        for name in (GROUP_GET_NUMS, GROUP_GET_SIZE)
        for topic in TOPICS
        for group in ("live", "tagged", "sql")
    ]
    return (
        (total.put_count, total.put_size, total.found_count, total.transferred_count),
        sorted(statistics.put_count_by_topic.items()),
        offsets,
        got,
        world.broker.half_counts.open_counts(),
        world.broker.half_counts.end_counts(),
        world.broker.timers.status(world.now_ms),
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


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    st.lists(of_transactions, min_size=12, max_size=40),
    st.sampled_from([1 << 20, 1000, 77]),
    st.sampled_from(FlushMode),
    st.booleans(),
)
def test_both_paths_keep_and_end_the_same(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool
) -> None:
    """Both paths store and end timers, half messages and plain messages alike, once the handlers
    have allowed the fast path.
    """
    key = "UNIQ_KEY\x017F0000010000558C00000000000000"
    first = [send_to(queue_id, f"{key}1{queue_id}\x02{HALF}") for queue_id in (0, 1)]
    first += [send_to(queue_id, f"{key}2{queue_id}\x02") for queue_id in (0, 1)]
    first += [send_to(0, f"{key}30\x02TIMER_DELAY_SEC\x012\x02")]
    compare([*first, *plan], cut, mode, turn, "")


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
        "code": 10,
        "topic": "Plain",
        "queue_id": queue_id,
        "body": b"x",
        "sys_flag": 0,
        "flag": 0,
        "reconsume_times": None,
        "batch": None,
        "oneway": False,
        "codec": Codec.JSON,
        "version": 513,
        "properties": properties,
    }


def pull_of(queue_id: int) -> dict[str, Any]:
    header = PullMessageRequest("live", "Plain", queue_id, 0, 32, 0, 1, 0, 0)
    return {"codec": Codec.JSON, "version": 513, "header": header}


@settings(max_examples=1)
@given(st.none())
def test_past_findings(_nothing: None) -> None:
    """Past findings of this property stay mended.

    A reader's position was dropped with a queue that its topic lost; the next message id differed
    where too few replicas were in sync; no term could begin on a damaged log (the length of a
    topic, after a body of two bytes); a wrong batch was refused as illegal where no writes were
    permitted.
    """
    queues, sent = [0, 0, 1, 1], {**send_to(0), "body": b"xx"}
    reads = [*map(send_to, queues), *map(pull_of, queues * 2), "narrow", pull_of(0), pull_of(0)]
    compare(reads, 1 << 20, FlushMode.ASYNC_FLUSH, False, "")
    for plan in (
        [*[send_to(0)] * 3, "too few", send_to(0, ""), "too few", send_to(0, ""), "ack"],
        [*[sent] * 3, "damage", pull_of(0), sent, "end", sent, pull_of(0)],
        [send_to(0), "ack", "too few", {**send_to(0, ""), "code": 320, "batch": True}],
    ):
        compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False, SYNC_MASTER, replicated=True)


SPECIAL = [
    "DELAY", "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
    "INNER_MULTI_DISPATCH",
]  # fmt: skip


@settings(max_examples=1)
@given(st.none())
def test_both_paths_refuse_the_same_elements(_nothing: None) -> None:
    """An element of a batch that asks for a time, a transaction or light queues, wherever the
    property stands; a value, or a part of a name, asks for nothing.
    """
    plan: list[Any] = [send_to(0)] * 3
    for name in SPECIAL:
        value = "true" if name == "TRAN_MSG" else "17"
        for text in (
            f"{name}\x01{value}",
            f"KEYS\x01k\x02{name}\x01{value}\x02own\x011\x02",
            f"own\x011\x01{name}\x01{value}\x02",
            f"own\x01{name}\x02{name}",
            f"{name[1:]}\x01{value}\x02{name}S\x01{value}\x02",
            f"\x01{value}\x02\x02\x01",
        ):
            elements = [(0, b"x", KEYED.encode()), (0, b"y", text.encode()), (0, b"z", b"")]
            batch = {"code": 320, "batch": True, "body": encode_batch(elements)}
            plan.append({**send_to(0), **batch})
    compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False, "")


def compare(
    plan: list[Any],
    cut: int,
    mode: FlushMode,
    turn: bool,
    properties: str,
    replicated: bool = False,
) -> int:
    """Carry out a plan on both paths, and return the number of sends decoded by a template."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        texts = f"{SMALL}{properties}"
        native, python = make(one, mode, texts), make(two, mode, texts)
        replicas = [Replicas(world) for world in (native, python)] if replicated else []
        driven = Driven(native, turn=turn)
        peer = Peer(ADDRESS, pack_host(ADDRESS), None)  # type: ignore[arg-type]
        responses: dict[int, list[bytes]] = {}
        pending = b""
        for world in (native, python):
            world.broker.transactions.step(world.now_ms)
        for opaque, step in enumerate(plan):
            if isinstance(step, dict) and "half" in step:
                data = end_of(python, step, opaque)
            elif isinstance(step, dict):
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
            handle(python, peer, decode(data), responses)
        driven.feed(pending, cut)
        event(f"sends natively: {min(driven.lane.send_count, 9) // 3 * 3} or more")
        event(f"pulls natively: {min(driven.pulled.found_count, 9) // 3 * 3} or more")
        event(f"kept natively: {min(driven.lane.kept_count, 9) // 3 * 3} or more")
        event(f"ended natively: {min(driven.lane.end_count, 4)}")
        event(f"answers wait at the end: {min(driven.lane.pending.count, 3)}")
        for each in replicas:
            each.end()
        driven.collect()
        assert driven.held == driven.lane.pending.count == 0
        check_same(driven, responses, plan, (one, two))
        assert driven.peer.version == peer.version
        one_count, two_count = counted(native), counted(python)
        assert one_count == two_count, (one_count, two_count)
        native.close()
        python.close()
        driven.near.close()
        driven.far.close()
        assert files_of(one) == files_of(two)
        return driven.lane.matched_count


def check_same(
    driven: Driven, responses: dict[int, list[bytes]], plan: list[Any], folders: tuple[str, str]
) -> None:
    """Check that all responses are equal; a refusal names the damaged file, in folders with names
    of the same length.
    """
    for frames in driven.responses.values():
        frames[:] = [frame.replace(folders[0].encode(), folders[1].encode()) for frame in frames]
    both = driven.responses.keys() | responses.keys()
    differ = [each for each in both if driven.responses.get(each) != responses.get(each)]
    assert not differ, [
        (plan[each], driven.responses.get(each), responses.get(each)) for each in differ
    ]

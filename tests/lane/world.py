"""A broker whose fast lane is driven without a loop: tests pass the received bytes and collect the
written ones.
"""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import FlushMode
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.receive_buffer import Area
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.send import SendMessageRequest, write_send
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.names import HALF_TOPIC
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import MULTI_TAG, TopicConfig
from turbopump.pyx.fast import FastConnection, Turn

ADDRESS = "127.0.0.1:50000"
SMALL = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=200\nmaxMessageSize=4000\n"
RECEIVE_MAX = 1 << 20
FRAME_MAX = 1 << 20


class Driven(FastConnection):
    """A connection without a loop: the socket is read at once, `rest` holds the bytes of its
    transport.

    `turn`: responses wait for `end_turn`, which `feed` calls after each third read and at its end.
    """

    def __init__(self, world: World, *, turn: bool = False) -> None:
        self.world = world
        self.peer = Peer(ADDRESS, pack_host(ADDRESS), None)  # type: ignore[arg-type]
        self.near, self.far = socket.socketpair()
        self.responses: dict[int, list[bytes]] = {}
        self.closed, self.held = False, 0
        self.rest = self.partial = b""
        self.views: list[Any] = []
        self.blocks_at = 1 << 30
        broker = world.broker
        self.ended: list[Callable[[], None]] = []
        world.soon = self.soon
        self.fast_lane = fast = broker.fast
        self.lane, self.pulled = fast.lane, fast.pulls
        broker.topics.on_change = fast.invalidate_topics
        fast.start(broker.store_host)
        area = self.area = Area(RECEIVE_MAX)
        self.turn = Turn(self.lane, self.ended.append) if turn else None
        descriptor = self.near.fileno()
        self.go_fast(self.lane, fast.pulls, descriptor, self.peer.host, area, FRAME_MAX, self.turn)

    def soon(self, work: Callable[[], None]) -> None:
        """The store commits at once, as it does for handlers; tests have the pulls that wait
        attempted, by ticks or `wake`."""
        broker = self.world.broker
        of_transactions = getattr(work, "__self__", None) is broker.transactions
        if (
            work not in (broker.store.notify_arrivals, broker.held_pulls.attempt_grown)
            and getattr(work, "__self__", None) is not broker.fast.held_rows
            and not of_transactions
        ):
            work()

    def end_turn(self) -> None:
        """End the turn as the loop does."""
        while self.ended:
            self.ended.pop()()
        self.collect()

    def begins(self) -> bool:
        return True

    def gives(self, size: int) -> bool:
        return True

    def give_way(self) -> None:
        """No-op: there are no other connections."""

    def took(self, size: int) -> None:
        """No-op, as give_way."""

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
        """Collect the bytes written to the socket."""
        written = b""
        self.far.setblocking(False)
        try:
            while part := self.far.recv(1 << 20):
                written += part
        except BlockingIOError:
            pass
        written, self.rest = self.partial + written + self.rest, b""
        self.partial = take(self.responses, written)

    def frame(self, view: memoryview) -> bool:
        self.met_version = -1
        handle(self.world, self.peer, decode(view), self.responses)
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

    def answer_late(self, opaque: int, response: Command | None) -> None:
        self.held -= 1
        note(Command(0, opaque), self.responses, response)

    def lose(self) -> None:
        """The peer is gone."""
        self.closed = True
        self.end_fast()
        self.peer.lost()

    def clock(self) -> float:
        return 1.0

    def later(self, callback: Callable[[], None]) -> None:
        self.ended.append(callback)


def wake(world: World) -> None:
    """End turns of the loop until no arrival is left for pulls that wait."""
    broker = world.broker
    broker.store.notify_arrivals()
    broker.fast.held_rows.wake()
    broker.held_pulls.attempt_grown()
    while broker.held_pulls.release_some() or broker.fast.held_rows.has_leaving:
        pass


def take(responses: dict[int, list[bytes]], written: bytes) -> bytes:
    """Answers by opaque: their order is free. Returns the beginning of an incomplete one."""
    at = 0
    while len(written) - at >= 4:
        size = 4 + int.from_bytes(written[at : at + 4], "big")
        if len(written) - at < size:
            break
        frame = written[at : at + size]
        responses.setdefault(decode(frame).opaque, []).append(frame)
        at += size
    return written[at:]


def handle(world: World, peer: Peer, request: Command, responses: dict[int, list[bytes]]) -> None:
    """A request through the handlers, as the connection gives it to them."""
    peer.version = request.version
    response = world.table.dispatch(request, peer, world.now_ms)
    if isinstance(response, Deferred):
        response.then(partial(note, request, responses))
    else:
        note(request, responses, response)


def note(request: Command, responses: dict[int, list[bytes]], response: Command | None) -> None:
    """Note the response to a request."""
    if response is not None and not request.is_oneway:
        response.opaque = request.opaque
        take(responses, b"".join(bytes(part) for part in encode(response)))


TOPICS = [
    "Plain", "Other", "Inner", "Multi", "Compact", "%RETRY%group", "TBW102", "New-1", "bad name",
]  # fmt: skip


SQL = "KEYS CONTAINS 'k2' OR (TAGS = 'TagA' AND WAIT IN ('false'))"


def frame_of(step: dict[str, Any], opaque: int) -> bytes:
    if "header" in step:
        command = new_request(RequestCode.PULL_MESSAGE, fields=write_header(step["header"]))
        return finish(command, step, opaque)
    header = SendMessageRequest(
        producer_group="producers",
        topic=step["topic"],
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=step["queue_id"],
        sys_flag=step["sys_flag"],
        born_timestamp=1_699_999_999_000 + opaque,
        flag=step["flag"],
        properties=step["properties"],
        reconsume_times=step["reconsume_times"],
        batch=step["batch"],
    )
    command = new_request(
        step["code"],
        fields=write_send(step["code"], header),
        body=step["body"],
        oneway=step["oneway"],
    )
    return finish(command, step, opaque)


def end_of(world: World, step: dict[str, Any], opaque: int) -> bytes:
    """Request to end a half message of the broker, or an unknown half message if it has none."""
    store, wrong = world.broker.store, step["wrong"]
    units = store.units(HALF_TOPIC, 0, 0, 100)
    unit = units[step["half"] % len(units)] if units else None
    record = store.record_of(unit) if unit is not None else None
    found = decode_properties(record.properties) if record is not None else {}
    key = found.get("UNIQ_KEY", "key")
    header = EndTransactionRequest(
        producer_group="others" if wrong == "group" else found.get("PGROUP", "producers"),
        tran_state_table_offset=(record.queue_offset if record else 0) + (wrong == "state"),
        commit_log_offset=(unit.log_offset if unit else 0) + (wrong == "log"),
        commit_or_rollback=step["commit"],
        msg_id="another" if wrong == "id" else key,
        from_transaction_check=wrong == "check",
        transaction_id=None if wrong == "id" else key,
    )
    oneway = step["oneway"]
    command = new_request(RequestCode.END_TRANSACTION, header, oneway=oneway)
    return finish(command, step, opaque)


def finish(command: Command, step: dict[str, Any], opaque: int) -> bytes:
    command.opaque, command.codec, command.version = opaque, step["codec"], step["version"]
    return b"".join(bytes(part) for part in encode(command))


def subscribe(world: World, group: str, wanted: str, version: int, kind: str = "TAG") -> None:
    topics = [parse_subscription(topic, wanted, kind, version) for topic in ("Plain", "Other")]
    data = ConsumerData(group, subscription_data_set=topics)
    world.broker.consumers.register(world.client, "client", data, world.now_ms)
    for _ in world.broker.filters.register(group, topics, world.now_ms):
        pass


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

"""One seed of the suite of pops (I16): consumers that pop, a broker, and the power.

The real parts of a broker over the simulated disk, on virtual time. Consumers acknowledge soon,
late, twice or never, change a message's time, and lose answers. The broker ends by power cuts and
kills, anywhere. What must hold is in `model.py`.
"""

import random
from collections.abc import Generator
from functools import partial

from tests.sim.disk import PowerCut, SimDisk
from tests.sim.pops.model import Message, Model
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import load_config
from turbopump.broker.context import BrokerContext
from turbopump.broker.parts import Surroundings, make_broker, request_table
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.broker.tables.saving import Saver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.hosts import pack
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.message_id import UniqueIds
from turbopump.net.wire.pop_handles import PopHandle, RetryKind, read_start_offsets

ROOT = "/store"
START_MS = 1_800_000_000_000
TICK_MS = 100
LIVES = 4
STEPS_MAX = 60
SAVE_MS = 1_500
SETTLE_MS = 60_000
PAUSES_MS = (0, 0, 5, 100, 100, 400, 1_000, 3_000)
INVISIBLE_MS = (300, 1_500, 1_500, 6_000, 20_000)


class Link:
    """The consumers' connection."""

    def send(self, command: Command) -> None:
        pass

    def close(self) -> None:
        pass


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.steady_ms = 0
        self.disk = SimDisk(rng, lambda: self.now_ms)
        self.disk.torn_pages = rng.random() < 0.3
        self.work = QueuedDisk(rng)
        self.is_sync = rng.random() < 0.7
        self.text = (
            f"storePathRootDir={ROOT}\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=16384\n"
            "mappedFileSizeConsumeQueue=800\nmaxHashSlotNum=16\nmaxIndexNum=40\n"
            f"flushDiskType={'SYNC' if self.is_sync else 'ASYNC'}_FLUSH\n"
            f"reviveQueueNum={rng.choice((1, 2, 8))}\n"
            f"popFromRetryProbability={rng.choice((0, 20, 100))}\n"
            f"enableRetryTopicV2={rng.choice(('true', 'false'))}\n"
        )
        self.model = Model(self.is_sync)
        self.context: BrokerContext | None = None
        self._saved_ms = 0
        self._soon: list = []

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.steady_ms + START_MS

    def play(self) -> Model:
        """All lives; AssertionError is a finding."""
        for _ in range(self.rng.randrange(1, LIVES + 1)):
            self.disk.kill = self.rng.random() < 0.5
            try:
                self._life()
            except PowerCut:
                self.model.ends += 1
            self.model.ended(self.now_ms, power=not self.disk.kill)
            self.disk.restart()
            self.context, self.work = None, QueuedDisk(self.rng)
            self.steady_ms += 1_000
        self._settle()
        return self.model

    # Lives

    def _life(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.disk.cut_after = rng.randrange(60)
        self._open()
        self.disk.cut_after = rng.randrange(300) if rng.random() < 0.5 else None
        for _ in range(rng.randrange(STEPS_MAX)):
            self._step()
        self.disk.end()

    def _open(self) -> None:
        config, _ = load_config(self.text)
        files = ConfigFiles(self.disk, f"{ROOT}/config")
        saver = Saver(files, self.work)
        topics = TopicTable(config, saver)
        topics.load()
        store = Store.open(
            self.disk,
            config.store,
            self.work,
            self.now_ms,
            steady_ms=self.steady_ms,
            delay_levels_ms=config.delay_levels_ms,
        )
        self._soon = []
        self.context = make_broker(config, store, topics, self._around(files, saver))
        self.context.address = "127.0.0.1:10911"
        self.context.store_host = pack(self.context.address)
        self.files = files
        self.table: Dispatcher = request_table(self.context)
        self.peer = Peer("127.0.0.1:4711", pack("127.0.0.1:4711"), Link())
        self._saving = False

    def _around(self, files: ConfigFiles, saver: Saver) -> Surroundings:
        return Surroundings(
            files=files,
            store_files=self.disk,
            disk=self.work,
            timer_slots=8_000,
            saver=saver,
            random=self.rng,
            unique_ids=UniqueIds(b"\x7f\0\0\1", 1, 2, lambda: self.now_ms),
            wall_ms=lambda: self.now_ms,
            steady_ms=lambda: self.steady_ms,
            native_clock=lambda: self.now_ms,
            soon=self._soon.append,
            register_topics=lambda names: Later(),
            save_config=lambda changed: Later(),
            call=lambda address, request, timeout_ms: Later(),
        )

    def _settle(self) -> None:
        """No trouble any more, and consumers that acknowledge: each message ends."""
        self._open()
        for number in range(SETTLE_MS // TICK_MS):
            self._tick()
            self.work.close()
            if number % 5 == 0:
                self._pop(sure=True)
            self._turn()
        self.model.settled()

    # Steps

    @property
    def _broker(self) -> BrokerContext:
        assert self.context is not None, "it is up"
        return self.context

    def _step(self) -> None:
        rng = self.rng
        pause_ms = PAUSES_MS[rng.randrange(len(PAUSES_MS))]
        for _ in range(pause_ms // TICK_MS):
            self._tick()
        if pause_ms < TICK_MS:
            self.steady_ms += pause_ms
        draw = rng.random()
        if draw < 0.2:
            self._send()
        elif draw < 0.45:
            self._pop()
        elif draw < 0.7:
            self._use_one()
        elif draw < 0.73:
            self.disk.writeback()
        else:
            for _ in range(rng.randrange(6)):
                self.work.step()
        if rng.random() < 0.7:
            self._turn()

    def _turn(self) -> None:
        """The loop's turn ends."""
        due, self._soon[:] = list(self._soon), []
        for work in due:
            work()

    def _tick(self) -> None:
        self.steady_ms += TICK_MS
        broker = self._broker
        broker.store.tick(self.now_ms, self.steady_ms)
        for _ in range(3):
            self.work.step()
        for _ in range(20):
            if broker.timers.step(self.now_ms, self.steady_ms) != 0:
                break
        broker.pop.step(self.now_ms)
        self._turn()
        if self.steady_ms - self._saved_ms >= SAVE_MS and not self._saving:
            self._saved_ms = self.steady_ms
            self._save()

    def _save(self) -> None:
        steps = self._broker.offsets.take_changes()
        if steps is None:
            return
        *_, content = steps
        self._saving = True

        def saved(_result: object) -> None:
            self._saving = False

        self.work.submit(partial(self.files.replace, OFFSETS_FILE, content), saved)

    def _ask(self, code: int, header: object, body: bytes = b"") -> Later[Command | None]:
        answer = self.table.dispatch(new_request(code, header, body), self.peer, self.now_ms)
        while isinstance(answer, Generator):
            try:
                next(answer)
            except StopIteration as ended:
                answer = ended.value
        if isinstance(answer, Later):
            return answer
        later: Later[Command | None] = Later()
        later.resolve(answer)
        return later

    def _send(self) -> None:
        message = Message(len(self.model.messages))
        self.model.messages.append(message)
        header = SendMessageRequestV2(
            "PG", "T", "TBW102", 2, self.rng.randrange(2), 0, self.now_ms, 0, properties=""
        )

        def told(answer: Command | None) -> None:
            message.is_safe = answer is not None and answer.code == 0

        body = b"%d %s" % (message.number, b"x" * 30)
        self._ask(RequestCode.SEND_MESSAGE_V2, header, body).then(told)

    def _pop(self, *, sure: bool = False) -> None:
        rng, invisible_ms = self.rng, self.rng.choice(INVISIBLE_MS)
        count = 32 if sure else rng.choice((1, 3, 32))
        header = PopMessageRequest("g", "T", -1, count, invisible_ms, 0, self.now_ms, 0)
        began_ms = self.now_ms

        def told(answer: Command | None) -> None:
            if answer is None or answer.code != 0:
                return
            for message, handle in self._messages(answer):
                self.model.popped(message, began_ms, began_ms + invisible_ms)
                message.handles.append(handle)
                if sure:
                    self._ack(message, handle)

        self._ask(RequestCode.POP_MESSAGE, header).then(told)

    def _messages(self, answer: Command) -> list[tuple[Message, str]]:
        found = []
        reply = read_header(PopMessageResponse, answer.fields)
        starts = read_start_offsets(reply.start_offset_info or "")
        for each in decode_messages(b"".join(answer.body)):
            handle = each.properties.get("POP_CK")
            if handle is None:
                handle = PopHandle(
                    starts[RetryKind.NORMAL, each.queue_id],
                    reply.pop_time,
                    reply.invisible_time,
                    reply.revive_qid,
                    RetryKind.NORMAL,
                    self._broker.config.broker_name,
                    each.queue_id,
                    each.queue_offset,
                ).text()
            found.append((self.model.messages[int(each.body.split()[0])], handle))
        return found

    def _use_one(self) -> None:
        """A consumer has handled a message, or wants more time for it."""
        held = [message for message in self.model.messages if message.handles]
        if not held:
            return
        message = held[-1 - min(int(self.rng.expovariate(0.3)), len(held) - 1)]
        handle = message.handles[-1]
        if self.rng.random() < 0.8:
            self._ack(message, handle)
        else:
            self._change(message, handle)

    def _ack(self, message: Message, text: str) -> None:
        message.was_handled = True
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of("T", "g")
        header = AckMessageRequest("g", topic, handle.queue_id, text, handle.queue_offset or 0)

        def told(answer: Command | None) -> None:
            # One that was changed meanwhile is no longer that of the message.
            if answer is not None and answer.code == 0 and message.handles[-1:] == [text]:
                until_ms = handle.pop_time_ms + handle.invisible_ms
                self.model.done(message, until_ms, self.now_ms)

        self._ask(RequestCode.ACK_MESSAGE, header).then(told)

    def _change(self, message: Message, text: str) -> None:
        handle = PopHandle.parse(text)
        invisible_ms = self.rng.choice(INVISIBLE_MS)
        offset = handle.queue_offset or 0
        topic = handle.kind.topic_of("T", "g")
        header = ChangeInvisibleTimeRequest("g", topic, handle.queue_id, text, offset, invisible_ms)
        if self.now_ms >= handle.pop_time_ms + handle.invisible_ms or message.is_done:
            return  # it may be on its way to another consumer
        message.until_ms = 0
        message.handles.clear()
        message.is_changing = True

        def told(answer: Command | None) -> None:
            message.is_changing = False
            if answer is None or answer.code != 0 or message.handles:
                return
            new = read_header(ChangeInvisibleTimeResponse, answer.fields)
            until_ms = handle.pop_time_ms + handle.invisible_ms
            if self.now_ms < until_ms:
                message.until_ms = new.pop_time + new.invisible_time
                place = f"{handle.kind.value} {handle.broker_name} {handle.queue_id} {offset}"
                message.handles.append(
                    f"{offset} {new.pop_time} {new.invisible_time} {new.revive_qid} {place}"
                )

        self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).then(told)


def run_seed(seed: int) -> Model:
    """Play one seed."""
    return Run(seed).play()

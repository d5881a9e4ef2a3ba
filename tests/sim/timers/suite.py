"""One seed of the suite of timers (I14, F29): sends, recalls, a clock that is set, and the power.

The real parts of a broker over the simulated disk, on virtual time, with a wheel that is so small
that timers roll and go round it. The broker ends by power cuts and kills, anywhere. What must hold:
a timer is delivered once or more, never before its time by the clock that is read, and none that
was durable is lost.
"""

import random
from dataclasses import dataclass

from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import load_config
from turbopump.broker.context import BrokerContext
from turbopump.broker.parts import Surroundings, make_broker, request_table
from turbopump.broker.tables.saving import Saver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import (
    RecallMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from turbopump.net.wire.hosts import pack
from turbopump.net.wire.message_id import UniqueIds, decode_message_id
from turbopump.net.wire.properties import encode_properties

ROOT = "/store"
START_MS = 1_800_000_000_000
TICK_MS = 100
LIVES = 4
STEPS_MAX = 70
SLOTS = 400
"""Of the wheel: 200 s, of which 140 are the window, so longer ones roll."""
DELAYS_MS = (1, 300, 999, 1_000, 2_500, 7_000, 30_000, 150_000, 260_000)
JUMPS_MS = (-100_000, -30_000, -1_500, 1_500, 60_000)
PAUSES_MS = (0, 0, 10, 100, 300, 1_000, 3_000, 10_000)
SETTLE_MS = 60_000
LATE_MS = 5_000
SETTLE_TICK_MS = 500


class NoLink:
    """Of a client that is never asked anything."""

    def send(self, command: Command) -> None:
        raise AssertionError(f"the broker asks {command.code}")

    def close(self) -> None:
        pass


@dataclass
class Timer:
    """One, as its sender and its consumers see it."""

    number: int
    due_ms: int
    seen_ms: int
    """The latest the clock has shown since it was sent."""
    handle: str = ""
    log_offset: int = -1
    is_sure: bool = False
    """It was stored, and nothing that has happened can have taken it."""
    is_recalled: bool = False
    delivered: int = 0


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.steady_ms, self.skew_ms = 0, START_MS
        self.disk = SimDisk(rng, lambda: self.now_ms)
        self.disk.torn_pages = rng.random() < 0.3
        self.work = QueuedDisk(rng)
        self.clock_jumps = rng.random() < 0.4
        self.is_sync = rng.random() < 0.5
        self.text = (
            f"storePathRootDir={ROOT}\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=16384\n"
            "mappedFileSizeConsumeQueue=400\nmaxHashSlotNum=16\nmaxIndexNum=40\n"
            f"flushDiskType={'SYNC' if self.is_sync else 'ASYNC'}_FLUSH\n"
            f"mappedFileSizeTimerLog={rng.choice((300, 700, 5200))}\nrecallMessageEnable=true\n"
        )
        self.timers: list[Timer] = []
        self.context: BrokerContext | None = None
        self._soon: list = []
        self._seen = 0
        self.ends = 0

    @property
    def acked(self) -> int:
        """Timers that were taken."""
        return len(self.timers)

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.steady_ms + self.skew_ms

    def play(self) -> "Run":
        """All lives; AssertionError is a finding."""
        for _ in range(self.rng.randrange(1, LIVES + 1)):
            self.disk.kill = self.rng.random() < 0.5
            try:
                self._life()
            except PowerCut:
                self.ends += 1
            self._ended(power=not self.disk.kill)
            self.disk.restart()
            self.context, self.work = None, QueuedDisk(self.rng)
            self._pass(1_000)
        self._settle()
        return self

    def _pass(self, duration_ms: int) -> None:
        self.steady_ms += duration_ms
        for timer in self.timers:
            timer.seen_ms = max(timer.seen_ms, self.now_ms)

    def _ended(self, power: bool) -> None:
        """What was not on the disk may be gone after a power cut."""
        if power and not self.is_sync:
            for timer in self.timers:
                timer.is_sure = timer.is_sure and timer.log_offset < self._flushed

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
        around = Surroundings(
            files=files,
            store_files=self.disk,
            disk=self.work,
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
            timer_slots=SLOTS,
        )
        self.context = make_broker(config, store, topics, around)
        self.context.address = "127.0.0.1:10911"
        self.context.store_host = pack(self.context.address)
        self.table: Dispatcher = request_table(self.context)
        self.peer = Peer("127.0.0.1:4711", pack("127.0.0.1:4711"), NoLink())
        self._seen, self._flushed = 0, 0
        for timer in self.timers:
            timer.delivered = 0
        self._look(is_new=False)

    def _settle(self) -> None:
        """No trouble any more: each timer comes at its time, and in the end all have come."""
        self._open()
        self._calm(SETTLE_MS)
        self._check_due(self.now_ms - LATE_MS)
        last_ms = max((timer.due_ms for timer in self.timers), default=0)
        self.skew_ms += max(0, last_ms - self.now_ms)
        self._calm(SETTLE_MS)
        self._check_due(self.now_ms - LATE_MS)
        waiting = self._broker.timers.metrics.total
        assert waiting <= len(self.timers), f"{waiting} wait, it says"

    def _calm(self, duration_ms: int) -> None:
        for _ in range(duration_ms // SETTLE_TICK_MS):
            self._tick(SETTLE_TICK_MS)
            self.work.close()

    def _check_due(self, until_ms: int) -> None:
        for timer in self.timers:
            is_owed = timer.is_sure and not timer.is_recalled and timer.due_ms <= until_ms
            assert timer.delivered or not is_owed, (
                f"timer {timer.number}, due at {timer.due_ms}, is lost at {self.now_ms}"
            )

    # Steps

    @property
    def _broker(self) -> BrokerContext:
        assert self.context is not None, "it is up"
        return self.context

    def _step(self) -> None:
        rng = self.rng
        pause_ms = PAUSES_MS[rng.randrange(len(PAUSES_MS))]
        for _ in range(pause_ms // TICK_MS):
            self._tick(TICK_MS)
        if pause_ms < TICK_MS:
            self._pass(pause_ms)
        draw = rng.random()
        if draw < 0.4:
            self._send()
        elif draw < 0.45:
            self._recall()
        elif draw < 0.5:
            self.disk.writeback()
        elif draw < 0.54 and self.clock_jumps:
            self.skew_ms += rng.choice(JUMPS_MS)
            self._pass(0)
        else:
            for _ in range(rng.randrange(6)):
                self.work.step()
        self._turn()
        self._look()

    def _turn(self) -> None:
        due, self._soon[:] = list(self._soon), []
        for work in due:
            work()

    def _tick(self, tick_ms: int) -> None:
        self._pass(tick_ms)
        broker = self._broker
        broker.store.tick(self.now_ms, self.steady_ms)
        for _ in range(3):
            self.work.step()
        for _ in range(20):
            if broker.timers.step(self.now_ms, self.steady_ms) != 0:
                break
        self._turn()
        self._look()

    def _send(self) -> None:
        number, now_ms = len(self.timers), self.now_ms
        delay_ms = self.rng.choice(DELAYS_MS)
        kind = self.rng.randrange(3)
        if kind == 0:
            properties = {"TIMER_DELIVER_MS": str(now_ms + delay_ms)}
        elif kind == 1 or delay_ms < 1_000:
            properties = {"TIMER_DELAY_MS": str(delay_ms)}
        else:
            delay_ms = delay_ms // 1_000 * 1_000
            properties = {"TIMER_DELAY_SEC": str(delay_ms // 1_000)}
        timer = Timer(number, now_ms + delay_ms, now_ms)
        self.timers.append(timer)
        properties["UNIQ_KEY"] = f"ID{number}"
        text = encode_properties(properties).decode()
        header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, now_ms, 0, properties=text)

        def told(answer: Command | None) -> None:
            if answer is not None and answer.code == 0:
                stored = read_header(SendMessageResponse, answer.fields)
                timer.log_offset = decode_message_id(stored.msg_id)[1]
                timer.handle, timer.is_sure = stored.recall_handle or "", True

        self._ask(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number, told)

    def _recall(self) -> None:
        known = [timer for timer in self.timers if timer.handle and not timer.delivered]
        if known:
            timer = self.rng.choice(known)
            timer.is_recalled = True  # whatever becomes of the recall
            header = RecallMessageRequest("T", timer.handle, "PG")
            self._ask(RequestCode.RECALL_MESSAGE, header, b"", lambda _answer: None)

    def _ask(self, code: int, header: object, body: bytes, told: object) -> None:
        answer = self.table.dispatch(new_request(code, header, body), self.peer, self.now_ms)
        if isinstance(answer, Later):
            answer.then(told)  # type: ignore[arg-type]
        else:
            told(answer)  # type: ignore[operator]

    # What must hold

    def _look(self, *, is_new: bool = True) -> None:
        """Every delivery that a reader can see; `is_new`: it was made since the last look."""
        store = self._broker.store
        self._flushed = store.flushed_log_offset
        for unit in store.units("T", 0, QueueOffset(self._seen), 1_000):
            record = store.record(unit.log_offset)
            assert record is not None
            timer = self.timers[int(record.body)]
            early = timer.due_ms - timer.seen_ms
            assert not is_new or early <= 0, f"timer {timer.number} came {early} ms early"
            timer.delivered += 1
            self._seen += 1


def run_seed(seed: int) -> Run:
    """Play one seed."""
    return Run(seed).play()

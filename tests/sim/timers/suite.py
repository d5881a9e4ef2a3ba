"""A seed of the suite of timers (I14, F29): sends, recalls, a clock that is set, and power cuts.

Some seeds have messages of delay levels, too, drawn with a generator of its own.

The real parts of a broker over the simulated disk, on virtual time, with a small wheel, so that
timers roll and go round it. The broker ends by power cuts and kills, anywhere. Invariants: a timer
is delivered at least once, never before its time by the clock that is read, and no durable timer is
lost.
"""

import random
from dataclasses import dataclass

from tests.sim.broker.due_times import LEVELS_MS
from tests.sim.broker.lives import TICK_MS, BrokerLives
from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import (
    RecallMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.properties import encode_properties

SLOTS = 400
"""Slots of the wheel: 200 s, of which 140 are the window, so longer timers roll."""
DELAYS_MS = (1, 300, 999, 1_000, 2_500, 7_000, 30_000, 150_000, 260_000)
JUMPS_MS = (-100_000, -30_000, -1_500, 1_500, 60_000)
LEVELED, SALT, LEVELS = 0.3, 0xDE1A, 4
"""Seeds with delay levels, and how many levels they use: up to 30 s."""
FINE, FINE_SALT, FINE_SLOTS = 0.3, 0xF19E, 8_000
"""Seeds with slots of other lengths, which change at a restart; clocks that step by hours and by a
month; backlogs, and recalls near the time of a timer. All of that has a generator of its own."""
HOUR_MS = 3_600_000
ROUNDS_MAX = 20
"""A jump of more rounds of the wheel costs minutes: each overdue timer rolls twice a round."""
PRECISIONS_MS = (5, 20, 100, 250, 1_000)
FINE_JUMPS_MS = (-3_000, -2_000, -1_500, 1_500, -HOUR_MS, HOUR_MS, 31 * 86_400_000)
BACKLOG, BACKLOG_DELAY_MS = 560, 9_000
RECALLED_MS = 5_000
SETTLE_MS = 60_000
LATE_MS = 5_000
SETTLE_TICK_MS = 500
DUE_STEPS_MAX = 50_000


@dataclass
class Timer:
    """A timer, as its sender and its consumers see it."""

    number: int
    due_ms: int
    seen_ms: int
    """The latest the clock has shown since it was sent."""
    handle: str = ""
    log_offset: int = -1
    is_sure: bool = False
    """Whether it was stored, and no later event can have lost it."""
    is_recalled: bool = False
    recall_end: int = -1
    """End of the log when its recall was confirmed, before its time and its delivery; -1: not
    recalled.
    """
    is_level: bool = False
    delivered: int = 0


class Run(BrokerLives):
    """Run of a seed."""

    steps_max = 70
    timer_slots = SLOTS
    saves_offsets = False
    pauses_ms = (0, 0, 10, 100, 300, 1_000, 3_000, 10_000)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.has_levels = random.Random(seed ^ SALT).random() < LEVELED
        self.clock_jumps = rng.random() < 0.4
        self.is_sync = rng.random() < 0.5
        self.configure(
            is_sync=self.is_sync,
            mappedFileSizeTimerLog=rng.choice((300, 700, 5200)),
            recallMessageEnable="true",
        )
        self.fine = random.Random(seed ^ FINE_SALT)
        self.is_fine = self.fine.random() < FINE
        self._ahead_ms = 0
        if self.is_fine:
            self.timer_slots = FINE_SLOTS
            self._change_precision()
        self.timers: list[Timer] = []
        self._seen = self._flushed = 0

    def _change_precision(self) -> None:
        lines = [line for line in self.text.splitlines() if "timerPrecisionMs" not in line]
        lines.append(f"timerPrecisionMs={self.fine.choice(PRECISIONS_MS)}")
        self.text = "\n".join(lines) + "\n"

    @property
    def acked(self) -> int:
        """Timers that were taken."""
        return len(self.timers)

    def _pass(self, duration_ms: int) -> None:
        super()._pass(duration_ms)
        for timer in self.timers:
            timer.seen_ms = max(timer.seen_ms, self.now_ms)

    def _opened(self) -> None:
        self._seen, self._flushed = 0, 0
        for timer in self.timers:
            timer.delivered = 0
        self._look(is_new=False)

    def _ended(self, *, power: bool) -> None:
        """Note the end of a life: a power cut may lose unsynced records."""
        if power and not self.is_sync:
            for timer in self.timers:
                timer.is_sure = timer.is_sure and timer.log_offset < self._flushed
                if timer.recall_end > self._flushed:
                    timer.recall_end = -1
        if self.is_fine and self.fine.random() < 0.4:
            self._change_precision()

    def _settle(self) -> None:
        """Check without trouble that each timer is delivered at its time, and all in the end."""
        self._open()
        self._calm(SETTLE_MS)
        self._check_due(self.now_ms - LATE_MS)
        last_ms = max((timer.due_ms for timer in self.timers), default=0)
        self.skew_ms += max(0, last_ms - self.now_ms)
        self._calm(SETTLE_MS)
        self._check_due(self.now_ms - LATE_MS)
        waiting = self.broker.timers.metrics.total
        assert waiting <= len(self.timers), f"{waiting} wait, it says"

    def _calm(self, duration_ms: int) -> None:
        for _ in range(duration_ms // SETTLE_TICK_MS):
            self._tick(SETTLE_TICK_MS)
            self.work.close()
            if self.is_fine:
                self._finish_due_work()

    def _finish_due_work(self) -> None:
        """Step until the timers stand still, while no time passes. A clock that was ahead by a
        month leaves a backlog that rolls hundreds of times round a wheel of seconds, which costs
        steps. A broker takes its next step at once; only a simulated one gets two in a second."""
        for _ in range(DUE_STEPS_MAX):
            timers = self.broker.timers
            before = timers.enqueued.total, timers.dequeued.total
            self._tick(0)
            self.work.close()
            if before == (timers.enqueued.total, timers.dequeued.total):
                return
        raise AssertionError(f"the timers are not done after {DUE_STEPS_MAX} steps")

    def _check_due(self, until_ms: int) -> None:
        for timer in self.timers:
            is_owed = timer.is_sure and not timer.is_recalled and timer.due_ms <= until_ms
            assert timer.delivered or not is_owed, (
                f"timer {timer.number}, due at {timer.due_ms}, is lost at {self.now_ms}"
            )

    # Steps

    def _act(self) -> None:
        if self.is_fine:
            self._act_fine()
        rng = self.rng
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
            self._work_some()
        self._turn()
        self._look()

    def _act_fine(self) -> None:
        draw = self.fine.random()
        if draw < 0.04:
            self._backlog()
        elif draw < 0.12 and self.clock_jumps:
            by_ms = self.fine.choice(FINE_JUMPS_MS)
            if abs(by_ms) == HOUR_MS:
                rounds_ms = ROUNDS_MAX * FINE_SLOTS * self.broker.config.store.timer_precision_ms
                by_ms = min(max(by_ms, -rounds_ms), rounds_ms)
            if self._ahead_ms and self.fine.random() < 0.7:
                by_ms = -self._ahead_ms
            self._ahead_ms = max(0, self._ahead_ms + by_ms) if abs(by_ms) > 10_000 else 0
            self.skew_ms += by_ms
            self._pass(0)
        elif draw < 0.3:
            self._recall_near()

    def _backlog(self) -> None:
        """Send more timers than one step enqueues, then recall some that are due soon."""
        for _ in range(3):
            self._send_fine(RECALLED_MS)
        recalled = self.timers[-3:]
        for _ in range(BACKLOG):
            self._send_fine(BACKLOG_DELAY_MS)
        for timer in recalled:
            self._recall_one(timer)
        if self.fine.random() < 0.5:
            self.skew_ms += RECALLED_MS + 500
            self._pass(0)

    def _send_fine(self, delay_ms: int) -> None:
        timer = Timer(len(self.timers), self.now_ms + delay_ms, self.now_ms)
        self._store(timer, {"TIMER_DELIVER_MS": str(timer.due_ms)})

    def _recall_near(self) -> None:
        waiting = [one for one in self.timers if one.handle and not one.delivered]
        soon = [one for one in waiting if 0 < one.due_ms - self.now_ms < RECALLED_MS]
        if soon:
            self._recall_one(self.fine.choice(soon))

    def _recall_one(self, timer: Timer) -> None:
        timer.is_recalled = True
        header = RecallMessageRequest("T", timer.handle, "PG")

        def answered(response: Command | None) -> None:
            in_time = timer.seen_ms < timer.due_ms and not timer.delivered
            if response is not None and response.code == 0 and in_time:
                timer.recall_end = self.broker.store.max_log_offset

        self._ask(RequestCode.RECALL_MESSAGE, header).then(answered)

    def _serve(self) -> None:
        self._deliver_timers()
        if self.has_levels:
            delay = self.broker.delay
            delay.step(self.now_ms)
            delay.begin_save()
            self._parts.save_table(DELAY_FILE, delay.take_unsaved_content, delay.save_failed)

    def _tick(self, tick_ms: int = TICK_MS) -> None:
        super()._tick(tick_ms)
        self._look()

    def _send(self) -> None:
        number, now_ms = len(self.timers), self.now_ms
        delay_ms = self.rng.choice(DELAYS_MS)
        kind = self.rng.randrange(5 if self.has_levels else 3)
        if kind > 2:
            level = 1 + number % LEVELS
            delay_ms, properties = LEVELS_MS[level - 1], {"DELAY": str(level)}
        elif kind == 0:
            properties = {"TIMER_DELIVER_MS": str(now_ms + delay_ms)}
        elif kind == 1 or delay_ms < 1_000:
            properties = {"TIMER_DELAY_MS": str(delay_ms)}
        else:
            delay_ms = delay_ms // 1_000 * 1_000
            properties = {"TIMER_DELAY_SEC": str(delay_ms // 1_000)}
        timer = Timer(number, now_ms + delay_ms, now_ms, is_level=kind > 2)
        self._store(timer, properties)

    def _store(self, timer: Timer, properties: dict[str, str]) -> None:
        number, now_ms = timer.number, self.now_ms
        self.timers.append(timer)
        properties["UNIQ_KEY"] = f"ID{number}"
        text = encode_properties(properties).decode()
        header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, now_ms, 0, properties=text)

        def on_response(response: Command | None) -> None:
            if response is not None and response.code == 0:
                stored = read_header(SendMessageResponse, response.fields)
                timer.log_offset = decode_message_id(stored.msg_id)[1]
                timer.handle, timer.is_sure = stored.recall_handle or "", True

        self._ask(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number).then(on_response)

    def _recall(self) -> None:
        known = [timer for timer in self.timers if timer.handle and not timer.delivered]
        if known:
            timer = self.rng.choice(known)
            timer.is_recalled = True  # whatever becomes of the recall
            header = RecallMessageRequest("T", timer.handle, "PG")
            self._ask(RequestCode.RECALL_MESSAGE, header)

    # Checks

    def _look(self, *, is_new: bool = True) -> None:
        """Every delivery that a reader can see; `is_new`: it was made since the last look."""
        store = self.broker.store
        self._flushed = store.flushed_log_offset
        for unit in store.units("T", 0, QueueOffset(self._seen), 1_000):
            record = store.record(unit.log_offset)
            assert record is not None
            timer = self.timers[int(record.body)]
            early = timer.due_ms - timer.seen_ms
            if timer.is_level and self.clock_jumps:
                early = 0  # where a clock was set back, levels are due at once
            assert not is_new or early <= 0, f"timer {timer.number} came {early} ms early"
            assert not is_new or timer.recall_end < 0, f"timer {timer.number} was recalled"
            timer.delivered += 1
            self._seen += 1


def run_seed(seed: int) -> Run:
    """Play one seed of this suite."""
    return Run(seed).play()

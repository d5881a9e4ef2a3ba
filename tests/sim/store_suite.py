"""One seed of the store suite: random work and random trouble, and what must hold afterwards.

Drives the real engine over the simulated disk on virtual time. A store lives several times; each
life ends by a power cut or a kill (after a number of disk operations, also inside recovery, a roll,
a truncation or a close, or between two steps) or by a close. Each seed draws which kinds of trouble
it knows, so that rare ones meet each other undisturbed, and mostly one that it is about.
"""

import random
from collections.abc import Callable

from tests.sim.checkers import (
    check_checkpoint,
    check_counted,
    check_cut,
    check_opened,
    check_read,
    check_removals,
    check_slices,
    check_store,
)
from tests.sim.damage import Damage
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.model import Model, Sent
from tests.sim.work import QueuedDisk
from tests.waiting import delete_expired
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, LogOffset, NewMessage, PutStatus, StoreError

ROOT = "/store"
CHECKPOINT = f"{ROOT}/{checkpoint.FILE_NAME}"
START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
STEPS_MAX = 40
LIVES_MAX = 3
STUMBLES_MAX = 3
TOPICS = (("A", 0), ("A", 1), ("Longer-topic", 0), ("%RETRY%g", 0))
SIZES = (8, 8, 60, 60, 200, 200, 900, 2000)
BIG_SIZES = (60, 900, 900, 2000)
PAUSES_MS = (0, 1, 7, 100, 100, 1000, 3000)
KEYS = tuple(f"k{number}" for number in range(12))
TAGS = ("", "t", "other")
PREPARED = 0x04
TROUBLES = (
    "full", "bad sync", "read-only", "slow", "retention", "deletion", "writeback", "torn pages",
    "ordered", "kill", "clock", "damage", "truncation", "stumbling",
)  # fmt: skip
ANY_SIZE = (4096, 4096, 8192, 16384)
ANY_QUEUE = (100, 100, 400, 4000)
QUEUE_FILE_SIZES = {"retention": (100,)}
LOG_FILE_SIZES = {"retention": (4096,), "torn pages": (8192, 16384)}
# What a seed is about happens so much more often.
THEME_FACTOR = 4
THEMED = 0.7
# Used to more than diskSpaceWarningLevelRatio: writes are refused.
NEARLY_FULL = 0.95
RETRIES_MAX = 20
# How many seeds end with a close and one more start.
CLOSED_AT_LAST = 0.25


class Run:
    """One seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        rng = self.rng = random.Random(seed)
        self.steady_ms = self.ticked_ms = 0
        self.skew_ms = START_MS
        """Of the wall clock, which may be set."""
        self.troubles = {name for name in TROUBLES if rng.random() < 0.3}
        self.theme = rng.choice(TROUBLES) if rng.random() < THEMED else ""
        if about:
            self.theme = about[0]
            self.troubles.update(about)
        elif self.theme:
            self.troubles.add(self.theme)
        self.disk = SimDisk(rng, lambda: self.now_ms)
        self.disk.torn_pages = "torn pages" in self.troubles
        self.disk.ordered = "ordered" in self.troubles
        self.disk.on_end = self._note_unfinished
        self.work = QueuedDisk(rng)
        sync = rng.random() < 0.7
        self.config = StoreConfig(
            root=ROOT,
            mapped_file_size_commit_log=rng.choice(LOG_FILE_SIZES.get(self.theme, ANY_SIZE)),
            mapped_file_size_consume_queue=rng.choice(QUEUE_FILE_SIZES.get(self.theme, ANY_QUEUE)),
            max_hash_slot_num=rng.choice((3, 16)),
            max_index_num=rng.choice((8, 40)),
            flush_disk_type=FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH,
            flush_commit_log_least_pages=rng.choice((0, 1, 4)),
            flush_consume_queue_thorough_interval_ms=rng.choice((1000, 1000, 5000, 60_000)),
            file_reserved_time_hours=1 if "retention" in self.troubles else 1_000_000,
            delete_when=";".join(map(str, range(24))),
            max_message_size=2048,
        )
        self.model = Model.of(self.config, sync)
        self.store: Store | None = None
        self.unfinished: list[Sent] = []
        self.held: list[tuple[list[Sent], list[memoryview]]] = []
        self.marks: checkpoint.DurableMarks | None = None
        self.seen_checkpoint = b""
        self.removed = 0
        """Log files before this are gone for good."""
        self.may_refuse = False
        """Whether this life met trouble for which a store may refuse writes."""
        self.must_refuse = False
        """Whether a sender learnt that the disk failed: nothing may be written after that."""
        self.waits_ms: dict[object, int] = {}
        """When each piece of work that a disk thread has not done was first seen by a tick."""
        self.withdrawing = False
        """Whether waiters are answered because the log is cut or closed."""
        self.damage = Damage(self.disk, rng)
        self.damages: list[str] = []
        self.is_damaged = False
        """Whether no start has repaired the last damage yet."""
        self.number = 0
        self.actions = self._actions()

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.steady_ms + self.skew_ms

    def _actions(self) -> list[Callable[[Store], None]]:
        """What a step may do, as often as it is likely."""
        weights = {
            self._append: 22, self._append_batch: 6, self._append_prepared: 1, self._burst: 2,
            self._work: 18, self._tick: 11, self._read: 7, self._work_all: 2, self._rest: 2,
            self._check: 1,
        }  # fmt: skip
        optional = {
            "full": {self._fill_disk: 3}, "bad sync": {self._break_sync: 1},
            "read-only": {self._remount: 1}, "slow": {self._wait: 3},
            "retention": {self._grow_old: 3, self._clean: 2, self._use_disk: 2, self._burst: 2},
            "torn pages": {self._burst: 3}, "deletion": {self._delete_topic: 2},
            "writeback": {self._writeback: 10}, "clock": {self._jump: 2},
            "truncation": {self._truncate: 3},
        }  # fmt: skip
        for name in sorted(self.troubles):
            factor = THEME_FACTOR if name == self.theme else 1
            for action, weight in optional.get(name, {}).items():
                weights[action] = weight * factor
        return [action for action, weight in weights.items() for _ in range(weight)]

    def play(self) -> Model:
        """All lives of the store; raises AssertionError where something does not hold."""
        for _ in range(self.rng.randrange(1, LIVES_MAX + 1)):
            try:
                self._life()
            except PowerCut:
                self._bury()
            if "damage" in self.troubles and self.model.lives:
                self._damage()
        try:
            self._last_life()
        except PowerCut:
            raise AssertionError("the process ended without a reason") from None
        return self.model

    # Lives

    def _life(self) -> None:
        rng = self.rng
        if "stumbling" in self.troubles:
            self._stumble()
        self.disk.kill = "kill" in self.troubles and rng.random() < 0.5
        if rng.random() < 0.3:
            self.disk.cut_after = rng.randrange(40)
        if "bad sync" in self.troubles:
            draw = rng.random()
            if draw < 0.1:
                self.disk.fail_syncs = 1
            elif draw < 0.4:
                self.disk.fail_sync_of_many = 1  # that of the queues' zeros
        store = self._open()
        if rng.random() < 0.5:
            self.disk.cut_after = rng.randrange(80)
        for _ in range(rng.randrange(STEPS_MAX)):
            self._step(store)
        if rng.random() < 0.4:
            self._end()
        self._close(store)
        if rng.random() < 0.3:
            self._end()
        self._process_is_gone()

    def _stumble(self) -> None:
        """Starts that end before the store can be used, one after the other (R46)."""
        for _ in range(self.rng.randrange(1, STUMBLES_MAX + 1)):
            self.disk.kill = "kill" in self.troubles and self.rng.random() < 0.5
            self.disk.cut_after = self.rng.randrange(40)
            try:
                self._open()
                self._end()
            except PowerCut:
                self._bury()

    def _last_life(self) -> None:
        store = self._open()
        self.work.close()  # the next log file, if the end of the last one is near
        sent = self._send(store, TOPICS[self.rng.randrange(len(TOPICS))], [self._body()])
        assert sent, "a healthy store takes messages"
        self.work.close()
        self._look(store)
        assert sent[0].acked, "a healthy store acknowledges messages"
        if self.rng.random() < CLOSED_AT_LAST:
            self._close(store)
            assert self.model.safe == len(self.model.log), "closed, but not all is durable"
            self._process_is_gone()
            self._open()

    def _open(self) -> Store:
        """Start a process on the folder, as often as it takes if the disk makes trouble."""
        self.model.lives += 1
        for _ in range(RETRIES_MAX):
            failed = self.disk.failed_syncs
            try:
                store = Store.open(
                    self.disk, self.config, self.work, self.now_ms, steady_ms=self.steady_ms
                )
            except StoreError as error:
                if self.disk.failed_syncs == failed:
                    raise
                assert "cannot be opened" in str(error)
                self.work = QueuedDisk(self.rng)
                continue
            self.disk.cut_after = None
            self.store = store
            self.ticked_ms = self.steady_ms
            self.may_refuse = self.must_refuse = self.withdrawing = False
            self._check_opened(store)
            return store
        raise AssertionError("the store does not open")

    def _check_opened(self, store: Store) -> None:
        model = self.model
        topic = model.doubtful_topic
        if topic and not any(store.max_queue_offset(*name) for name in TOPICS if name[0] == topic):
            model.delete(topic)
        model.doubtful_topic = ""
        check_opened(store, model, self.disk)
        check_store(store, model, self.config, self.disk, self.rng)
        marks = checkpoint.load(self.disk, ROOT).marks
        assert marks is not None and marks.queues <= marks.log <= len(model.log)
        if self.marks is not None:
            assert marks.queues >= self.marks.queues, "the checkpoint went back"
        self.marks = marks
        self.is_damaged = False

    def _end(self) -> None:
        """The process ends here and now."""
        self.disk.end()
        raise PowerCut

    def _end_perhaps(self) -> None:
        """Names were removed: a good moment to lose the power."""
        for _ in range(self.rng.randrange(4)):
            self.work.step()
        if self.rng.random() < 0.2:
            self._end()

    def _note_unfinished(self) -> None:
        """An append was under way: its bytes may be found later."""
        store, model = self.store, self.model
        if store is not None and store.max_log_offset > len(model.log):
            model.appended(self.disk, store.max_log_offset, self.unfinished)

    def _bury(self) -> None:
        """After a power cut or a kill."""
        self.model.ended(not self.disk.kill, self.store is not None)
        self._process_is_gone()

    def _process_is_gone(self) -> None:
        if self.disk.failed_syncs and self.rng.random() < 0.3:
            self.disk.forget_lost()
            self.model.required = min(self.model.required, self.model.safe)
        self.disk.restart()
        self.disk.used = 0.5
        self.removed = 0
        self.store = None
        self.unfinished = []
        self.held = []
        self.work = QueuedDisk(self.rng)
        self.steady_ms += 1000

    def _close(self, store: Store) -> None:
        """All are answered, and a clean close loses nothing."""
        if self.rng.random() < 0.5:
            self.disk.cut_after = None
        self.withdrawing = True
        store.close(self.now_ms)
        self.work.close()
        self.disk.cut_after = None
        self._look(store)
        self.model.required = len(self.model.log)

    def _damage(self) -> None:
        """Between two lives. (With retention a queue may have nothing left to be rebuilt from, and
        what went is not missed if the checkpoint that counted it goes before a start.)"""
        if self.is_damaged:
            return
        if self.rng.random() < 0.5:
            marks = checkpoint.load(self.disk, ROOT).marks
            counted = marks is not None and marks.queue_count >= 0
            done = self.damage.do(
                index_too=marks is not None,
                queues_too=counted and "retention" not in self.troubles,
            )
            self.damages.append(done)
            self.is_damaged = True
            self.marks = None
        elif self.disk.exists(f"{ROOT}/checkpoint"):
            self.damage.remember()

    # Steps

    def _step(self, store: Store) -> None:
        rng = self.rng
        self.steady_ms += PAUSES_MS[int(rng.random() * len(PAUSES_MS))]
        self.actions[int(rng.random() * len(self.actions))](store)
        self._look(store)

    def _look(self, store: Store) -> None:
        """What must hold after every step."""
        model = self.model
        flushed, minimum = store.flushed_log_offset, store.min_log_offset
        if flushed > model.safe:
            model.flushed(self.disk, flushed)
        if model.sync:
            assert store.dispatched_log_offset <= model.safe, "shown, but not durable"
        if minimum != model.min_log:
            if minimum > model.min_log:
                check_counted(store, model, self.disk, ROOT)
                assert minimum <= self._queues_mark(), "the checkpoint has not got there"
            model.begins(minimum)
        if minimum > self.removed:
            self.removed = check_removals(model, self.disk, self.removed)
        content = self.disk.content(CHECKPOINT)
        if content != self.seen_checkpoint:
            self.seen_checkpoint = bytes(content)
            marks = checkpoint.decode(self.seen_checkpoint).marks
            assert marks is not None, "the checkpoint that was written cannot be read"
            check_checkpoint(marks, store, model, self.disk, ROOT)

    def _queues_mark(self) -> int:
        """Up to where the checkpoint that a crash leaves has the queues."""
        marks = checkpoint.decode(bytes(self.disk.durable(CHECKPOINT) or b"")).marks
        return marks.queues if marks is not None else 0

    def _body(self, sizes: tuple[int, ...] = SIZES) -> bytes:
        self.number += 1
        size = sizes[int(self.rng.random() * len(sizes))]
        return b"%08d" % self.number + b"x" * (size - 8)

    def _append(self, store: Store) -> None:
        self._send(store, TOPICS[int(self.rng.random() * len(TOPICS))], [self._body()])

    def _burst(self, store: Store) -> None:
        """Many bytes, and nothing of them durable yet."""
        for _ in range(self.rng.randrange(2, 8)):
            name = TOPICS[int(self.rng.random() * len(TOPICS))]
            self._send(store, name, [self._body(BIG_SIZES)])
        if self.theme == "torn pages" and self.rng.random() < 0.2:
            self._end()

    def _append_prepared(self, store: Store) -> None:
        self._send(store, TOPICS[0], [self._body()], PREPARED)

    def _append_batch(self, store: Store) -> None:
        bodies = [self._body()[:60] for _ in range(self.rng.randrange(1, 5))]
        self._send(store, TOPICS[self.rng.randrange(3)], bodies, batch=True)

    def _send(
        self, store: Store, name: tuple[str, int], bodies: list[bytes], flag: int = 0,
        batch: bool = False,
    ) -> list[Sent]:  # fmt: skip
        rng, model = self.rng, self.model
        first = len(model.queues.get(name, []))
        key, tag = KEYS[int(rng.random() * len(KEYS))], TAGS[int(rng.random() * len(TAGS))]
        pairs = {"KEYS": key} | ({"TAGS": tag} if tag else {})
        properties = "".join(f"{k}\x01{v}\x02" for k, v in pairs.items()).encode()
        sent = self.unfinished = [
            Sent(name, -1 if flag else first + number, body, key, tag)
            for number, body in enumerate(bodies)
        ]
        if batch:
            appended = store.append_batch(
                NewMessage(name[0], name[1], batch_body(bodies, properties)), self.now_ms
            )
        else:
            message = NewMessage(name[0], name[1], bodies[0], properties, sys_flag=flag)
            appended = store.append(message, self.now_ms)
        if appended.status is not PutStatus.PUT_OK:
            assert store.max_log_offset == len(model.log), "refused, but written"
            if not self._waits_for_file(store, appended.status):
                self._check_refused(appended.status)
            return []
        assert not self.must_refuse, "a disk that failed is written"
        model.appended(self.disk, store.max_log_offset, sent)
        self.unfinished = []
        assert [one.start for one in sent] == appended.log_offsets
        assert flag or sent[0].number == appended.queue_offset, (
            f"{name}: queue offset {appended.queue_offset}, expected {sent[0].number}"
        )

        due_ms = self.ticked_ms + self.config.sync_flush_timeout_ms

        def answer(status: PutStatus) -> None:
            if self.store is not store:
                return  # the process has died: its generators are collected, its peers hear nothing
            self._look(store)
            model.answer(sent, status)
            if status is not PutStatus.PUT_OK and self.steady_ms < due_ms and not self.withdrawing:
                assert self.may_refuse, "reported trouble without a reason"
                self.must_refuse = True

        store.when_safe(appended).then(answer)
        return sent

    def _waits_for_file(self, store: Store, status: PutStatus) -> bool:
        """Whether a roll is refused because the next log file is being made."""
        busy = status in (PutStatus.OS_PAGE_CACHE_BUSY, PutStatus.CREATE_MAPPED_FILE_FAILED)
        return busy and not store._log._next.is_idle

    def _check_refused(self, status: PutStatus) -> None:
        """Refused for a reason, and with the status that is documented for it."""
        assert self.may_refuse, f"refused without a reason: {status.name}"
        assert status is PutStatus.SERVICE_NOT_AVAILABLE or (
            status is PutStatus.CREATE_MAPPED_FILE_FAILED and not self.must_refuse
        ), f"refused with another status: {status.name}"

    def _work(self, _store: Store) -> None:
        self.work.step()

    def _work_all(self, _store: Store) -> None:
        self.work.close()

    def _rest(self, store: Store) -> None:
        """A while without work: all becomes durable, and the checkpoint says so."""
        for _ in range(3):
            self.steady_ms += self.config.flush_consume_queue_thorough_interval_ms
            self._tick(store)
            self.work.close()
            self._look(store)

    def _rest_perhaps(self, store: Store) -> None:
        if self.rng.random() < 0.6:
            self._rest(store)

    def _tick(self, store: Store) -> None:
        # Work that is not done for as long as syncTimeoutMs may be a sync that counts as failed.
        since_ms = dict.fromkeys(self.work.jobs, self.ticked_ms)
        self.waits_ms = since_ms | {k: v for k, v in self.waits_ms.items() if k in since_ms}
        oldest_ms = min(self.waits_ms.values(), default=self.steady_ms)
        if self.steady_ms - oldest_ms >= self.config.sync_timeout_ms:
            self.may_refuse = True
        self.ticked_ms = self.steady_ms
        store.tick(self.now_ms, self.steady_ms)

    def _check(self, store: Store) -> None:
        check_store(store, self.model, self.config, self.disk, self.rng)

    def _read(self, store: Store) -> None:
        name = TOPICS[int(self.rng.random() * len(TOPICS))]
        check_read(store, self.model, name, self.rng)
        if "retention" in self.troubles and store.max_queue_offset(*name):
            start = store.min_queue_offset(*name)
            result = store.read(name[0], name[1], start, 32)
            self.held.append((self.model.queues[name][start : start + result.count], result.slices))
        for sent, slices in self.held[-5:]:
            if sent:
                check_slices(self.model, sent, slices)

    # Trouble

    def _fill_disk(self, _store: Store) -> None:
        self.may_refuse = True
        self.disk.full = not self.disk.full

    def _break_sync(self, _store: Store) -> None:
        self.may_refuse = True
        self.disk.fail_syncs = 1

    def _remount(self, _store: Store) -> None:
        self.may_refuse = True
        self.disk.readonly = self.rng.random() < 0.2

    def _wait(self, store: Store) -> None:
        self.steady_ms += self.config.sync_flush_timeout_ms
        self._tick(store)

    def _jump(self, _store: Store) -> None:
        self.skew_ms += self.rng.choice((-HOUR_MS, HOUR_MS))

    def _writeback(self, _store: Store) -> None:
        self.disk.writeback()

    def _grow_old(self, store: Store) -> None:
        self._burst(store)
        self._rest_perhaps(store)
        self._append(store)
        self.steady_ms += 2 * HOUR_MS
        self._tick(store)
        self._end_perhaps()

    def _clean(self, store: Store) -> None:
        delete_expired(store, self.now_ms)
        self._end_perhaps()

    def _use_disk(self, _store: Store) -> None:
        self.disk.used = self.rng.choice((0.5, 0.8, NEARLY_FULL))
        self.may_refuse |= self.disk.used == NEARLY_FULL

    def _delete_topic(self, store: Store) -> None:
        self._rest_perhaps(store)
        topic = TOPICS[int(self.rng.random() * len(TOPICS))][0]
        self.model.doubtful_topic = topic
        self.damage.forget()
        if self.theme == "deletion" and self.rng.random() < 0.5:
            self.disk.cut_after = self.rng.randrange(20)
        try:
            store.delete_topic(topic)
        except StoreError:
            # Whether it is gone shows after the next start: half a deletion is one or none.
            self._end()
        self.model.doubtful_topic = ""
        self.model.delete(topic)
        if "truncation" in self.troubles and self.rng.random() < 0.5:
            self._truncate(store)
        self._end_perhaps()

    def _truncate(self, store: Store) -> None:
        """Cut the log where a message begins, or refuse to: nothing that was cut comes back."""
        model = self.model
        ends = [one.start for one in model.sent[-10:] if one.start >= model.min_log]
        if not ends:
            return
        self._truncate_within(store, ends[0])
        model.cut_at = self.rng.choice([*ends, len(model.log)])
        cuts = model.cut_at < len(model.log)
        # The checkpoint goes back, an old one would lie, and views show what the file shows.
        self.marks, self.held = None, []
        self.damage.forget()
        self.withdrawing = True
        if "bad sync" in self.troubles and self.rng.random() < 0.5:
            # The first ones are of what stays, one is that of the queues' zeros.
            self.disk.fail_sync_of_many = self.rng.choice((1, 2, 2, 2, 3))
        try:
            store.truncate(LogOffset(model.cut_at), self.now_ms)
        except StoreError:
            # What became of it shows after the next start.
            self.disk.kill = self.rng.random() < 0.7
            self._end()
        self.disk.fail_syncs = self.disk.fail_sync_of_many = 0
        self.withdrawing = False
        lost = [one.name for one in model.sent[-10:] if one.start >= model.cut_at]
        model.cut(model.cut_at)
        model.cut_at = -1
        assert store.max_log_offset == len(model.log), "cut somewhere else"
        assert not cuts or store.flushed_log_offset == len(model.log), "cut, but not durable"
        check_cut(model, self.disk)
        check_store(store, model, self.config, self.disk, self.rng)
        if lost:
            self._send(store, self.rng.choice(lost), [self._body()])

    def _truncate_within(self, store: Store, start: int) -> None:
        """Inside of a record nothing is cut."""
        try:
            store.truncate(LogOffset(start + 1), self.now_ms)
        except StoreError:
            assert store.max_log_offset == len(self.model.log), "refused, but cut"
            return
        raise AssertionError(f"cut at {start + 1}, inside of a record")


def batch_body(bodies: list[bytes], properties: bytes) -> bytes:
    """A batch body (remoting.md 9.4); the elements have the same properties."""
    return b"".join(
        (22 + len(body) + len(properties)).to_bytes(4) + bytes(12) + len(body).to_bytes(4) + body
        + len(properties).to_bytes(2) + properties
        for body in bodies
    )  # fmt: skip


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Model:
    """Play one seed. AssertionError and StoreError are findings."""
    return Run(seed, about).play()

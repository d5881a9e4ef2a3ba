"""Single steps of a store's life, work or trouble, and the checks after each."""

from tests.sim.checkers import (
    check_checkpoint,
    check_counted,
    check_cut,
    check_read,
    check_removals,
    check_slices,
    check_store,
)
from tests.sim.disk import PowerCut
from tests.sim.model import Sent
from tests.sim.store_seed import ROOT, StoreSeed
from tests.waiting import delete_expired
from turbopump.engine.disk import checkpoint
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus, StoreError

CHECKPOINT = f"{ROOT}/{checkpoint.FILE_NAME}"
HOUR_MS = 3_600_000
TOPICS = (("A", 0), ("A", 1), ("Longer-topic", 0), ("%RETRY%g", 0))
SIZES = (8, 8, 60, 60, 200, 200, 900, 2000)
BIG_SIZES = (60, 900, 900, 2000)
KEYS = tuple(f"k{number}" for number in range(12))
TAGS = ("", "t", "other")
PREPARED = 0x04
# Used to more than diskSpaceWarningLevelRatio: writes are refused.
NEARLY_FULL = 0.95


def batch_body(bodies: list[bytes], properties: bytes) -> bytes:
    """A batch body (remoting.md 9.4); the elements have the same properties."""
    return b"".join(
        (22 + len(body) + len(properties)).to_bytes(4)
        + bytes(12)
        + len(body).to_bytes(4)
        + body
        + len(properties).to_bytes(2)
        + properties
        for body in bodies
    )


class StoreSteps(StoreSeed):
    """Steps of the store suite; each takes the open store."""

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

    def _look(self, store: Store) -> None:
        """Check the invariants that hold after every step."""
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
        """Log offset up to which the checkpoint on the disk, which a crash leaves, covers the
        queues.
        """
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
        self,
        store: Store,
        name: tuple[str, int],
        bodies: list[bytes],
        flag: int = 0,
        batch: bool = False,
    ) -> list[Sent]:
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
                # the process has died: its generators are collected, its peers receive nothing
                return
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
        """Idle for a while: everything becomes durable, and the checkpoint covers it."""
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
        # The checkpoint is reset, because an old one would be wrong; views show the changed file.
        self.marks, self.held = None, []
        self.damage.forget()
        self.withdrawing = True
        if "bad sync" in self.troubles and self.rng.random() < 0.5:
            # The first syncs are of data that stays, one is of the queues' zeros.
            self.disk.fail_sync_of_many = self.rng.choice((1, 2, 2, 2, 3))
        try:
            store.truncate(LogOffset(model.cut_at), self.now_ms)
        except StoreError:
            # The next start shows whether the truncation was done.
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

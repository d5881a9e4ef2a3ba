"""One seed of the store suite: random work, power cuts anywhere, and what must hold afterwards.

Drives the real engine over the simulated disk on virtual time. A power cut comes after a random
number of disk operations (also inside recovery, a roll or a truncation) or between two steps; the
disk then keeps any subset of what was not synced. The model knows what was acknowledged and what
readers were shown; tests/sim/checkers.py compares.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.sim.checkers import check_store
from tests.sim.disk import SimDisk
from turbopump.engine.config import StoreConfig
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, Message, PutStatus, QueueOffset, ReadStatus

ROOT = "/store"
START_MS = 1_800_000_000_000
STEPS_MAX = 60
LIVES_MAX = 4
TOPICS = (("A", 0), ("A", 1), ("Longer-topic", 0), ("%RETRY%g", 0))

T = TypeVar("T")


class PowerCut(BaseException):
    """The power went in the middle of a disk operation; nothing may catch it on the way up."""


class CuttingDisk(SimDisk):
    """Cuts the power after a number of operations."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        super().__init__(rng, now_ms)
        self.cut_after: int | None = None

    def _count(self) -> None:
        if self.cut_after is not None:
            self.cut_after -= 1
            if self.cut_after < 0:
                raise PowerCut

    def check_space(self) -> None:
        self._count()
        super().check_space()

    def check_sync(self) -> None:
        self._count()
        super().check_sync()


class QueuedDisk:
    """Disk work that waits until the seed lets it run: nothing is durable by luck of a thread."""

    def __init__(self) -> None:
        self._jobs: deque[QueuedJob] = deque()

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> "QueuedJob":
        job = QueuedJob(self, work, done)
        self._jobs.append(job)
        return job

    def step(self) -> bool:
        """Run the oldest piece of work; False if there was none."""
        if not self._jobs:
            return False
        self._jobs.popleft().run()
        return True

    def remove(self, job: "QueuedJob") -> None:
        """Forget a piece of work that ran early."""
        if job in self._jobs:
            self._jobs.remove(job)

    def close(self) -> None:
        while self.step():
            pass


class QueuedJob:
    """One piece of work on a QueuedDisk."""

    def __init__(
        self, disk: QueuedDisk, work: Callable[[], Any], done: Callable[[Any], None]
    ) -> None:
        self._disk = disk
        self._work = work
        self._done = done
        self._ran = False

    def run(self) -> None:
        """The work, then the report."""
        if self._ran:
            return
        self._ran = True
        try:
            result = self._work()
        except OSError as error:
            result = error
        self._done(result)

    def finish(self) -> None:
        """Run now if it did not run yet."""
        self._disk.remove(self)
        self.run()


@dataclass(slots=True)
class Sent:
    """A message the model knows of. `acked`: the sender was told that it is safe."""

    body: bytes
    key: str
    log_offset: int
    acked: bool = False
    seen: bool = False


@dataclass(slots=True)
class Model:
    """What a client of the store may rely on, per queue."""

    sync: bool
    queues: dict[tuple[str, int], dict[int, Sent]] = field(default_factory=dict)
    acked: int = 0
    cuts: int = 0

    def queue(self, name: tuple[str, int]) -> dict[int, Sent]:
        return self.queues.setdefault(name, {})


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = START_MS
        self.disk = CuttingDisk(self.rng, lambda: self.now_ms)
        self.work = QueuedDisk()
        sync = self.rng.random() < 0.7
        self.model = Model(sync)
        self.config = StoreConfig(
            root=ROOT,
            mapped_file_size_commit_log=self.rng.choice((4096, 8192, 16384)),
            mapped_file_size_consume_queue=self.rng.choice((100, 400, 4000)),
            max_hash_slot_num=self.rng.choice((3, 16)),
            max_index_num=self.rng.choice((8, 40)),
            flush_disk_type=FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH,
            flush_commit_log_least_pages=self.rng.choice((0, 1, 4)),
            file_reserved_time_hours=10_000,
            max_message_size=2048,
        )
        self.number = 0

    def play(self) -> Model:
        """All lives of the store; raises AssertionError where something does not hold."""
        for _ in range(self.rng.randrange(1, LIVES_MAX + 1)):
            try:
                self._life()
            except PowerCut:
                self._cut()
        self.disk.cut_after = None
        self._recover_quietly()
        return self.model

    def _cut(self) -> None:
        self.model.cuts += 1
        self.disk.cut_after = None
        self.disk.fail_sync = self.disk.full = False
        self.disk.crash()
        self.work = QueuedDisk()
        if not self.model.sync:
            # Without sync flush a cut may take what was acknowledged; nobody was promised more.
            for queue in self.model.queues.values():
                for sent in queue.values():
                    sent.acked = sent.seen = False

    def _open(self) -> Store:
        self.disk.full = False
        return Store.open(self.disk, self.config, self.work, self.now_ms)

    def _recover_quietly(self) -> None:
        store = self._open()
        check_store(store, self.model, self.config, self.disk)
        store.close(self.now_ms)
        self.work.close()

    def _life(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.disk.cut_after = rng.randrange(60)
        store = self._open()
        check_store(store, self.model, self.config, self.disk)
        if rng.random() < 0.5:
            self.disk.cut_after = rng.randrange(80)
        for _ in range(rng.randrange(STEPS_MAX)):
            self._step(store)
        end = rng.random()
        if end < 0.4:
            raise PowerCut
        store.close(self.now_ms)
        self.disk.cut_after = None
        self.work.close()
        if end < 0.5:
            raise PowerCut

    def _step(self, store: Store) -> None:
        choice = self.rng.random()
        self.now_ms += self.rng.choice((0, 1, 7, 100, 3000))
        if choice < 0.45:
            self._append(store)
        elif choice < 0.55:
            self._append_batch(store)
        elif choice < 0.75:
            self.work.step()
        elif choice < 0.85:
            store.tick(self.now_ms)
        elif choice < 0.95:
            self._read(store)
        elif choice < 0.97:
            self.disk.full = not self.disk.full
        else:
            self.work.close()

    def _body(self) -> bytes:
        self.number += 1
        size = self.rng.choice((8, 60, 200, 900, 2000))
        return b"%08d" % self.number + b"x" * (size - 8)

    def _append(self, store: Store) -> None:
        name = self.rng.choice(TOPICS)
        body, key = self._body(), f"k{self.rng.randrange(50)}"
        properties = b"KEYS\x01" + key.encode() + b"\x02TAGS\x01t\x02"
        message = Message(name[0], name[1], body, properties)
        appended = store.append(message, self.now_ms)
        if appended.status is not PutStatus.PUT_OK:
            return
        sent = Sent(body, key, appended.log_offsets[0])
        self._record(name, appended.queue_offset, [sent])
        store.when_safe(appended, self.now_ms).then(lambda status: self._answer([sent], status))

    def _append_batch(self, store: Store) -> None:
        name = self.rng.choice(TOPICS[:3])
        bodies = [self._body()[:60] for _ in range(self.rng.randrange(1, 5))]
        element = b"".join(
            (22 + len(body)).to_bytes(4, "big") + b"\0" * 12 + len(body).to_bytes(4, "big")
            + body + b"\0\0"
            for body in bodies
        )
        appended = store.append_batch(Message(name[0], name[1], element), self.now_ms)
        if appended.status is not PutStatus.PUT_OK:
            return
        sent = [
            Sent(body, "", at) for body, at in zip(bodies, appended.log_offsets, strict=True)
        ]
        self._record(name, appended.queue_offset, sent)
        store.when_safe(appended, self.now_ms).then(lambda status: self._answer(sent, status))

    def _record(self, name: tuple[str, int], first: QueueOffset, sent: list[Sent]) -> None:
        queue = self.model.queue(name)
        for number, one in enumerate(sent, first):
            older = queue.get(number)
            assert older is None or not older.acked, f"{name} {number} was given twice"
            queue[number] = one
        for number in [number for number in queue if number >= first + len(sent)]:
            assert not queue[number].acked, f"{name}: the queue went back below {number}"
            del queue[number]

    def _answer(self, sent: list[Sent], status: PutStatus) -> None:
        if status is PutStatus.PUT_OK:
            for one in sent:
                one.acked = True
            self.model.acked += len(sent)

    def _read(self, store: Store) -> None:
        name = self.rng.choice(TOPICS)
        queue = self.model.queue(name)
        start = self.rng.randrange(len(queue) + 1)
        result = store.read(name[0], name[1], start, 32)
        if result.status is ReadStatus.FOUND:
            joined = b"".join(bytes(part) for part in result.slices)
            for number in range(start, result.next_queue_offset):
                # Unknown ones were in flight when the power went, and survived.
                sent = queue.get(number)
                if sent is not None:
                    sent.seen = True
                    assert sent.body in joined, f"{name} {number}: another body"


def run_seed(seed: int) -> Model:
    """Play one seed. AssertionError and StoreError are findings."""
    return Run(seed).play()

"""Draws of a seed of the store suite: the store's configuration and the kinds of trouble that may
happen.
"""

import random

from tests.sim.damage import Damage
from tests.sim.disk import SimDisk
from tests.sim.model import Model, Sent
from tests.sim.work import QueuedDisk
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode

ROOT = "/store"
START_MS = 1_800_000_000_000
TROUBLES = (
    "full", "bad sync", "read-only", "slow", "retention", "deletion", "writeback", "torn pages",
    "ordered", "kill", "clock", "damage", "truncation", "stumbling",
)  # fmt: skip
ANY_SIZE = (4096, 4096, 8192, 16384)
ANY_QUEUE = (100, 100, 400, 4000)
QUEUE_FILE_SIZES = {"retention": (100,)}
LOG_FILE_SIZES = {"retention": (4096,), "torn pages": (8192, 16384)}
THEMED = 0.7


class StoreSeed:
    """A store that has not been opened yet."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        rng = self.rng = random.Random(seed)
        self.steady_ms = self.ticked_ms = 0
        self.skew_ms = START_MS
        """Offset of the wall clock to the steady clock, in ms; the clock may be set."""
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
        """Time of the tick that first saw each pending piece of disk work."""
        self.withdrawing = False
        """Whether waiters are answered because the log is cut or closed."""
        self.damage = Damage(self.disk, rng)
        self.damages: list[str] = []
        self.is_damaged = False
        """Whether no start has repaired the last damage yet."""
        self.number = 0

    @property
    def now_ms(self) -> int:
        """Time of the wall clock, which may be set."""
        return self.steady_ms + self.skew_ms

    def _note_unfinished(self) -> None:
        """An append was under way: its bytes may be found later."""
        store, model = self.store, self.model
        if store is not None and store.max_log_offset > len(model.log):
            model.appended(self.disk, store.max_log_offset, self.unfinished)

"""A seed of the store suite: random work and random trouble, and checks afterwards.

Drives the real engine over the simulated disk on virtual time. A store lives several times; each
life ends by a power cut or a kill (after a number of disk operations, also inside recovery, a roll,
a truncation or a close, or between two steps) or by a close. Each seed draws its kinds of trouble,
so that rare kinds meet each other undisturbed, and mostly one theme (store_seed.py). The steps of a
life are in store_steps.py.
"""

import re
from collections.abc import Callable

from tests.sim.checkers import check_opened, check_store
from tests.sim.disk import PowerCut
from tests.sim.model import Model
from tests.sim.store_seed import ROOT
from tests.sim.store_steps import TOPICS, StoreSteps
from tests.sim.work import QueuedDisk
from turbopump.engine.disk import checkpoint
from turbopump.engine.store import Store
from turbopump.engine.types import StoreError

STEPS_MAX = 40
LIVES_MAX = 3
STUMBLES_MAX = 3
PAUSES_MS = (0, 1, 7, 100, 100, 1000, 3000)
# Factor by which the weight of a seed's theme is raised.
THEME_FACTOR = 4
RETRIES_MAX = 20
# How many seeds end with a close and one more start.
CLOSED_AT_LAST = 0.25


class Run(StoreSteps):
    """Run of a seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        super().__init__(seed, about)
        self.actions = self._actions()

    def _actions(self) -> list[Callable[[Store], None]]:
        """Possible steps, each repeated by its weight."""
        weights = {
            self._append: 22,
            self._append_batch: 6,
            self._append_prepared: 1,
            self._burst: 2,
            self._work: 18,
            self._tick: 11,
            self._read: 7,
            self._work_all: 2,
            self._rest: 2,
            self._check: 1,
        }
        optional = {
            "full": {self._fill_disk: 3},
            "bad sync": {self._break_sync: 1},
            "read-only": {self._remount: 1},
            "slow": {self._wait: 3},
            "retention": {self._grow_old: 3, self._clean: 2, self._use_disk: 2, self._burst: 2},
            "torn pages": {self._burst: 3},
            "deletion": {self._delete_topic: 2},
            "writeback": {self._writeback: 10},
            "clock": {self._jump: 2},
            "truncation": {self._truncate: 3},
        }
        for name in sorted(self.troubles):
            factor = THEME_FACTOR if name == self.theme else 1
            for action, weight in optional.get(name, {}).items():
                weights[action] = weight * factor
        return [action for action, weight in weights.items() for _ in range(weight)]

    def play(self) -> Model:
        """Play all lives of the store; raise AssertionError for a broken invariant."""
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
                assert re.search("cannot be (opened|made durable)", str(error))
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

    def _bury(self) -> None:
        """Note the end of the process by a power cut or a kill."""
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
        """Close the store: every pending request is answered, and a clean close loses nothing."""
        if self.rng.random() < 0.5:
            self.disk.cut_after = None
        self.withdrawing = True
        store.close(self.now_ms)
        self.work.close()
        self.disk.cut_after = None
        self._look(store)
        self.model.required = len(self.model.log)

    def _damage(self) -> None:
        """Damage files between two lives.

        With retention a queue may have no records left to be rebuilt from, and the start cannot
        miss them if the checkpoint that counted them is lost first.
        """
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

    def _step(self, store: Store) -> None:
        rng = self.rng
        self.steady_ms += PAUSES_MS[int(rng.random() * len(PAUSES_MS))]
        self.actions[int(rng.random() * len(self.actions))](store)
        self._look(store)


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Model:
    """Play one seed. AssertionError and StoreError are findings."""
    return Run(seed, about).play()

"""Periodic duties of a broker: deliver, check, revive, count, save.

Owns the times of the duties and the set of tables being written. It must never do the work itself:
the parts of the broker do. node.py makes a new one for each opening of the store, and calls it at
each tick.

    tick -> a chain of steps for each duty with a backlog, with pauses in which sends are served
         -> tables that have changed: written by a disk's thread, each by one write at a time
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from turbopump.broker.assignment.history import lines_of
from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers import clients
from turbopump.broker.lifecycle.asyncio_util import run_logging_errors
from turbopump.broker.lifecycle.chain import PAUSE_MS, StepChain
from turbopump.broker.pop.order_info import FILE_NAME as ORDERS_FILE
from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.broker.tables.half_counts import FILE_NAME as HALVES_FILE
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.broker.tables.statistics import SAMPLE_INTERVAL_MS
from turbopump.engine.disk.config_files import ConfigFiles, pieces_of
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.json_table import Content
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.timer.timer_metrics import FILE_NAME as TIMER_METRICS_FILE
from turbopump.engine.types import QueueOffset

logger = logging.getLogger(__name__)

ORDERS_SAVE_MS: Final = 10_000
"""Interval in ms of saving ordered batches, as for RocketMQ's ConsumerOrderInfoManager."""
HISTORY_INTERVAL_MS, UNUSED_INTERVAL_MS = 1_000, 60_000
"""Intervals in ms of writing histories of assignments, and of sweeping unused assignments and stale
ordered batches."""
_HISTORIES: Final = "the histories of assignments"


class PeriodicTasks:
    """The periodic duties of a broker whose store is open: deliveries, checks, revival, statistics,
    saving. Loop thread only."""

    def __init__(
        self,
        context: BrokerContext,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        *,
        files: ConfigFiles,
        histories: RotatingJsonl,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        """`disk` writes `files`, the tables of `config`, and `histories`. `now_ms` returns the wall
        clock in ms since 1970, `steady_ms` the monotonic clock in ms."""
        self._context = context
        self._loop = loop
        self._disk = disk
        self._files = files
        self._histories = histories
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._due_ms: dict[str, int] = {}
        self._saving: set[str] = set()
        self._unsaved: set[str] = set()
        self._timers = self._make_chain("the delivery of timers", self._deliver_timers)
        self._chains = (
            self._make_chain("the delivery of delayed messages", self._step_of(context.delay.step)),
            self._make_chain(
                "the check of half messages", self._step_of(context.transaction_checks.step)
            ),
            self._timers,
            self._make_chain("the revival of popped messages", self._step_of(context.pop.step)),
        )
        context.store.on_arrival(self._on_arrival)
        context.timers.on_ready = self._timers.run_soon

    def tick(self) -> None:
        """Run all duties that are due now, and begin to write changed tables; called every 100 ms.
        A failure of a duty is logged and does not stop the others."""
        context, steady_ms = self._context, self._steady_ms()
        run_logging_errors(lambda: context.held_pulls.tick(steady_ms), "the long polls' tick")
        run_logging_errors(lambda: context.pop.waiters.tick(steady_ms), "the waiting pops' tick")
        for chain in self._chains:
            chain.tick()
        run_logging_errors(lambda: context.waiting.step(steady_ms), "the check of waiting messages")
        run_logging_errors(context.lags.tick, "the walk over the consumer groups")
        run_logging_errors(context.assignments.tick, "the assignments' tick")
        self.run_every("housekeeping", clients.HOUSEKEEPING_INTERVAL_MS, self._remove_expired)
        self.run_every("statistics", SAMPLE_INTERVAL_MS, self._sample_statistics)
        self.run_every("assignments", UNUSED_INTERVAL_MS, context.assignments.forget_unused)
        self.run_every("stale batches", UNUSED_INTERVAL_MS, self._sweep_orders)
        self.run_every("histories", HISTORY_INTERVAL_MS, self._write_history)
        self._save_tables()

    def stop(self) -> None:
        """Cancel the scheduled steps of all duties; tables being written are not waited for."""
        for chain in self._chains:
            chain.stop()

    def run_every(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        """To be called at each tick: run `work` if `interval_ms` has passed since its last run, or
        since the first call for `name`, which identifies the duty. An Exception of `work` is
        logged with `name`."""
        now_ms = self._steady_ms()
        # An interval that was shortened meanwhile takes effect at once.
        due_ms = min(self._due_ms.setdefault(name, now_ms + interval_ms), now_ms + interval_ms)
        if now_ms >= due_ms:
            due_ms = now_ms + interval_ms
            run_logging_errors(work, name)
        self._due_ms[name] = due_ms

    def _make_chain(self, name: str, step: Callable[[], int | None]) -> StepChain:
        """Make the chain of a duty, which ends when the broker shuts down."""
        return StepChain(self._loop, name, step, lambda: self._context.shutting_down)

    def _step_of(self, step: Callable[[int], bool]) -> Callable[[], int | None]:
        """Return the step of a chain for `step(now_ms)`, which only returns whether it has more to
        do."""
        return lambda: PAUSE_MS if step(self._now_ms()) else None

    def _remove_expired(self) -> None:
        """Close expired connections, and forget unused filters."""
        clients.remove_expired_clients(self._context)
        self._context.filters.remove_unused(self._now_ms())

    def _sweep_orders(self) -> None:
        """Remove old ordered batches, and batches of queues that do not exist."""
        context = self._context

        def queues_of(topic: str, group: str) -> int:
            found = context.topics.peek_topic(topic)
            if found is None or context.groups.get(group) is None:
                return 0
            return found.read_queue_nums

        context.pop.orders.remove_stale(queues_of, self._now_ms())

    def _sample_statistics(self) -> None:
        """Pass the store's counts to the statistics, and sample them."""
        stored = self._context.store.statistics
        self._context.statistics.set_put_totals(stored.put_count_by_topic, stored.put_size_by_topic)
        self._context.statistics.sample(self._now_ms())

    # Timers are due at a millisecond, not at a tick.

    def _deliver_timers(self) -> int | None:
        """Run a step of the timers; return the ms until the next one, None: at the next tick."""
        wait_ms = self._context.timers.step(self._now_ms(), self._steady_ms())
        return None if wait_ms is None else max(wait_ms, PAUSE_MS)

    def _on_arrival(self, topic: str, _queue_id: int, _end: QueueOffset) -> None:
        """Have a step of the timers run soon if the message arrived in the timer queue."""
        if topic == TIMER_TOPIC:
            self._timers.run_soon()

    # Tables

    def _save_tables(self) -> None:
        """Begin to write the tables whose interval has passed."""
        context, config = self._context, self._context.config
        orders, timers, halves = context.pop.orders, context.timers, context.half_counts
        delay_ms = config.flush_delay_offset_interval_ms
        self.run_every("offsets", config.flush_consumer_offset_interval_ms, self._save_offsets)
        self.run_every("delay", delay_ms, context.delay.begin_save)
        self._save_table(DELAY_FILE, context.delay.take_unsaved_content, context.delay.save_failed)
        self.run_every(
            "ordered batches",
            ORDERS_SAVE_MS,
            lambda: self._save_table(ORDERS_FILE, orders.take_unsaved_content, orders.save_failed),
        )
        self.run_every(
            "halves",
            config.transaction_metric_flush_interval_ms,
            lambda: self._save_table(
                HALVES_FILE,
                lambda: halves.take_changes(self._now_ms()),
                halves.save_failed,
            ),
        )
        self.run_every(
            "timers",
            delay_ms,
            lambda: self._save_table(
                TIMER_METRICS_FILE, timers.take_metrics, timers.metrics_failed
            ),
        )

    def _save_table(
        self, name: str, take: Callable[[], dict[str, Any] | None], failed: Callable[[], None]
    ) -> None:
        """Write the small table that `take` returns, if it has changed (not None); after a failure
        `failed` is called, and the next interval tries again."""
        if name in self._saving:
            return

        def save() -> None:
            content = take()
            if content is not None:
                self._save(name, partial(pieces_of, content), failed)

        run_logging_errors(save, f"the saving of {name}")

    def _save_offsets(self) -> None:
        """Begin to write the offsets if they have changed and no write of them is in progress."""
        if OFFSETS_FILE not in self._saving:
            steps = self._context.offsets.take_changes()
            if steps is not None:
                self._saving.add(OFFSETS_FILE)
                self._gather_offsets(steps)

    def _gather_offsets(self, steps: Iterator[Content | None]) -> None:
        """Gather a part of the offsets, then write all of them; other work may run on the loop
        between two steps."""
        if self._context.shutting_down:
            return  # all offsets are saved at the stop
        content = next(steps)
        if content is None:
            self._loop.call_soon(self._gather_offsets, steps)
        else:
            self._save(OFFSETS_FILE, content, self._context.offsets.save_failed)

    def _save(self, name: str, content: Content, failed: Callable[[], None]) -> None:
        """Write a configuration file on a disk thread, unless a write of it is in progress;
        `failed` is called after a failure."""
        self._saving.add(name)

        def done(result: OSError | None) -> None:
            self._saving.discard(name)
            if isinstance(result, OSError):
                if name not in self._unsaved:
                    logger.error("%s cannot be saved for now: %s", name, result)
                self._unsaved.add(name)
                failed()
            elif name in self._unsaved:
                self._unsaved.discard(name)
                logger.info("%s is saved again", name)

        self._disk.submit(partial(self._files.replace, name, content), done)

    def _write_history(self) -> None:
        """Append the waiting changes of assignments to the histories on a disk thread; after a
        failure they are lost."""
        history = self._context.assignments.history
        size_max = self._context.config.rebalance_history_bytes
        changes = [] if _HISTORIES in self._saving else history.take_changes()
        if not changes:
            return
        self._saving.add(_HISTORIES)

        def done(result: OSError | None) -> None:
            self._saving.discard(_HISTORIES)
            if isinstance(result, OSError):
                logger.warning(
                    "histories of %d assignments were not written and are lost: %s",
                    len(changes),
                    result,
                )

        def write() -> None:
            self._histories.append(lines_of(changes), size_max)

        self._disk.submit(write, done)

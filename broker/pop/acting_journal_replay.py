"""Copies the notes of acting replicas into the log of the returned master.

Notes go from popNotes.json (acting_journal.py) to the revive topic. A note must never be forgotten
before its records are as safe as a send. This runs on the master, which revives nothing until all
notes are written and read.

    idle --notes--> writing --all answered--> all safe: notes forgotten, idle
                       ^                      some failed: pause of AGAIN_MS --'

An acknowledgement of a check point that waits among the timers is stored there, too, after it, even
if its own time has passed: in the revive queue it would be read before its check point.

Tests: tests/unit/broker/pop/test_acting_journal.py
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from turbopump.broker.pop.acting_journal import ActingJournal, JournaledPop
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.types import PutStatus

logger = logging.getLogger(__name__)

NOTES_PER_STEP: Final = 64
"""Maximum number of notes written in one step, up to two records each, some 3 ms."""
AGAIN_MS: Final = 1_000
"""Pause in ms after records that did not become safe. They may be in the log all the same; writing
them again has no effect."""


class ActingJournalReplay:
    """Copies the notes of acting replicas into the log of the returned master, and forgets them
    once they are safe there. Loop thread only; times are epoch ms. `delivered_ms(now_ms)` returns
    the time up to which the timers in the log were delivered, 0 while that is unknown: nothing is
    written then."""

    def __init__(
        self, notes: ActingJournal, log: ReviveLog, delivered_ms: Callable[[int], int]
    ) -> None:
        self._notes, self._log = notes, log
        self._delivered_ms = delivered_ms
        self._left: deque[JournaledPop] | None = None
        self._upto = self._pending = self._life = 0
        self._has_failed = False
        self._failed_ms = 0

    def stop(self) -> None:
        """Stop writing: this broker is no longer the master. Results of writes that are still
        pending are ignored; the notes stay."""
        self._left, self._pending, self._has_failed, self._failed_ms = None, 0, False, 0
        self._life += 1

    def step(self, now_ms: int) -> bool:
        """Write at most NOTES_PER_STEP notes; call it until it returns True: no notes are left,
        because all are in the log, and safe. False also while writes are pending and in the pause
        after a failure."""
        if not len(self._notes):
            return True
        delivered_ms = self._delivered_ms(now_ms)
        if not delivered_ms or 0 <= now_ms - self._failed_ms < AGAIN_MS:
            return False
        if self._left is None:
            self._left = deque(self._notes.all_notes())
            self._upto, self._has_failed = self._left[-1].number, False
            logger.info("writing %d notes of replicas that acted to the log", len(self._left))
        for _ in range(min(NOTES_PER_STEP, len(self._left))):
            self._write(self._left.popleft(), delivered_ms, now_ms)
        self._end_if_written(now_ms)
        return not len(self._notes)

    def _write(self, note: JournaledPop, delivered_ms: int, now_ms: int) -> None:
        """Write a note's check point and acknowledgements to the log."""
        queue_id = note.revive_queue_id % self._log.queue_count()
        written = []
        if note.check_point is not None:
            written.append(self._log.add_check_point(note.check_point, queue_id, now_ms))
        if note.acked:
            ack, invisible_ms = note.to_acknowledgement(), note.invisible_ms
            written.append(self._log.add_ack(ack, invisible_ms, queue_id, now_ms, delivered_ms))
        self._pending += len(written)
        for one in written:
            one.then(partial(self._on_written, self._life, now_ms))

    def _on_written(self, life: int, now_ms: int, status: PutStatus) -> None:
        """Count a finished write of a note; writes of an earlier term (`life`) are ignored."""
        if life == self._life:
            self._pending -= 1
            self._has_failed |= status is not PutStatus.PUT_OK
            self._end_if_written(now_ms)

    def _end_if_written(self, now_ms: int) -> None:
        """If all notes are written, forget them, or write them again later if some failed."""
        if self._left is None or self._left or self._pending:
            return
        self._left = None
        if self._has_failed:
            self._failed_ms = now_ms
            logger.warning(
                "notes of replicas that acted were not all written: they will be written again"
            )
        else:
            self._notes.forget_notes(self._upto)

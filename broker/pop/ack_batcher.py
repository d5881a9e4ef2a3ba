"""Acknowledgements of a turn of the loop, joined by their check points.

Consumers acknowledge each message by a request of its own, and many of a pop arrive together: one
record is written for them. No acknowledgement is kept beyond the turn or answered before its record
is safe, and a failed one does not affect the answers of others.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.pop_records import MESSAGES_MAX, Acknowledgement, CheckPointKey

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _CollectedAcks:
    """Acknowledgements collected for one record of a check point, and the Deferred of the record's
    status."""

    invisible_ms: int
    written: Deferred[PutStatus]
    offsets: dict[QueueOffset, None] = field(default_factory=dict)


class AckBatcher:
    """Joins the acknowledgements of a turn of the loop into one record for each check point. Loop
    thread only. `call_soon` schedules `write_collected` after the present turn; `now_ms` returns
    epoch ms."""

    def __init__(
        self,
        log: ReviveLog,
        call_soon: Callable[[Callable[[], None]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._log = log
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._coming: dict[tuple[CheckPointKey, int], _CollectedAcks] = {}

    def add(
        self, key: CheckPointKey, offset: QueueOffset, invisible_ms: int, revive_queue_id: int
    ) -> Deferred[PutStatus]:
        """Collect the acknowledgement of the message at `offset` of the check point `key`.
        `invisible_ms` is the invisible time of that check point.

        The Deferred is shared by all messages of a record. It resolves with PUT_OK once that
        record is as safe as a send, or with the status of its failure. Nothing is written before
        `write_collected`, except that a full record, or another `invisible_ms` for the key, flushes
        at once.
        """
        joined = self._coming.get((key, revive_queue_id))
        if joined is not None and (
            joined.invisible_ms != invisible_ms or len(joined.offsets) >= MESSAGES_MAX
        ):
            self.write_collected()
            joined = None
        if joined is None:
            if not self._coming:
                self._call_soon(self.write_collected)
            joined = self._coming[key, revive_queue_id] = _CollectedAcks(invisible_ms, Deferred())
        joined.offsets[offset] = None
        return joined.written

    def write_collected(self) -> None:
        """Write one record for the collected acknowledgements of each check point now. An error is
        logged and resolves its acknowledgements with UNKNOWN_ERROR; nothing is raised."""
        coming, self._coming = self._coming, {}
        for (key, revive_queue_id), joined in coming.items():
            try:
                self._write(key, revive_queue_id, joined).then(joined.written.resolve)
            except Exception:
                # No dispatcher handles errors above this, and the following acknowledgements need
                # answers, too.
                logger.exception("an acknowledgement for %s could not be written", key.group)
                if not joined.written.done:
                    joined.written.resolve(PutStatus.UNKNOWN_ERROR)

    def _write(
        self, key: CheckPointKey, revive_queue_id: int, joined: _CollectedAcks
    ) -> Deferred[PutStatus]:
        """Write the record for the collected acknowledgements; resolves with its status."""
        offsets = tuple(joined.offsets)
        ack = Acknowledgement(key, offsets, is_batch=len(offsets) > 1)
        return self._log.add_ack(ack, joined.invisible_ms, revive_queue_id, self._now_ms())

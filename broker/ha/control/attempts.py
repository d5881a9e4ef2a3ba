"""What a broker asks its controllers, one script at a time, and when the next attempt is due.

Owns the running script and the wait behind it: after a failure a short one, else the period. It
must never know what a script asks. Called by membership.py only; times are of the monotonic clock.

A script (`Steps`, enrolment.py) yields each answer it waits for. Whatever it raises, the next
attempt begins anew.
"""

import logging
from collections.abc import Callable

from turbopump.broker.ha.control.enrolment import Steps
from turbopump.broker.ha.control.identity import IdentityError
from turbopump.broker.ha.control.words import BadAnswer
from turbopump.engine.types import LONG_AGO_MS, StoreError

logger = logging.getLogger(__name__)

AGAIN_MS = 500
"""From a registration or an election that failed to the next (RocketMQ: 5 s). A few requests a
second of a few brokers; clients wait meanwhile."""


class Attempts:
    """One broker's. Loop thread only."""

    def __init__(
        self, stage: Callable[[], str], steady_ms: Callable[[], int], period_ms: int
    ) -> None:
        """`stage` says for the log what is attempted."""
        self.reason = "not registered yet"
        """Why the last one failed; "" if it did not."""
        self._stage = stage
        self._steady_ms = steady_ms
        self._period_ms = period_ms
        self._script: Steps[None] | None = None
        self._due_ms = LONG_AGO_MS
        self._again = False

    def is_due(self, now_ms: int) -> bool:
        """Whether a script should be run now."""
        return self._script is None and now_ms >= self._due_ms

    def run(self, script: Steps[None]) -> None:
        """Begin it; it goes on as answers come."""
        self._script, self._again = script, False
        self._go_on(script, None)

    def hasten(self) -> None:
        """The next one is due at once, or as soon as the one that runs has succeeded."""
        self._due_ms = min(self._due_ms, self._steady_ms())
        self._again = self._script is not None

    def close(self) -> None:
        """End the script that runs: no answer counts any more."""
        script, self._script = self._script, None
        if script is not None:
            script.close()

    def _go_on(self, script: Steps[None], value: object) -> None:
        while self._script is script:
            reason = ""
            try:
                later = script.send(value)
            except StopIteration:
                wait_ms = self._period_ms
            except (BadAnswer, IdentityError, OSError, StoreError) as error:
                reason, wait_ms = str(error), AGAIN_MS
            else:
                if not later.done:
                    later.then(lambda told: self._go_on(script, told))
                    return
                value = later.value
                continue
            self._script = None
            self._due_ms = self._steady_ms() + (0 if self._again and not reason else wait_ms)
            if reason and reason != self.reason:
                logger.warning("%s: %s", self._stage(), reason)
            self.reason = reason

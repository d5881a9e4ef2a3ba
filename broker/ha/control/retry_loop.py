"""Requests of a broker to its controllers, in scripts: one at a time, with pauses.

Owns the running script and the pause after it: short after a failure, else the period. Times are of
the monotonic clock.

    waiting --due--> running --success--> waiting for the period
       ^                |
       '---- failure, pause of AGAIN_MS

A script (`Steps`, controller_registration.py) yields each answer it waits for. After any error the
next attempt starts from the beginning.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

import logging
from collections.abc import Callable

from turbopump.broker.ha.control.controller_protocol import BadResponse
from turbopump.broker.ha.control.controller_registration import Steps
from turbopump.broker.ha.control.identity import IdentityError
from turbopump.engine.types import LONG_AGO_MS, StoreError

logger = logging.getLogger(__name__)

AGAIN_MS = 500
"""Pause in ms after a registration or an election that failed (RocketMQ: 5 s). A few brokers send a
few requests a second, while clients wait."""


class RetryLoop:
    """Runs a broker's scripts, one at a time. Loop thread only."""

    def __init__(
        self, stage: Callable[[], str], steady_ms: Callable[[], int], period_ms: int
    ) -> None:
        """`stage` returns the broker's stage as a word for log lines; `period_ms` is the pause
        after a script that succeeded; `steady_ms` returns the monotonic clock in ms."""
        self.reason = "not registered yet"
        """Reason why the last script failed; "" if it succeeded; a placeholder before the first."""
        self._stage = stage
        self._steady_ms = steady_ms
        self._period_ms = period_ms
        self._script: Steps[None] | None = None
        self._due_ms = LONG_AGO_MS
        self._again = False

    def is_due(self, now_ms: int) -> bool:
        """Whether no script is running and the pause after the last script has ended by `now_ms`,
        a time of the monotonic clock."""
        return self._script is None and now_ms >= self._due_ms

    def run(self, script: Steps[None]) -> None:
        """Run a script up to its first unanswered request; it continues later, as answers arrive.
        BadResponse, IdentityError, OSError and StoreError end it as a failure: they are logged and
        become `reason`. To be called only while no script is running (`is_due`): again once the
        script has ended, never by the script itself."""
        self._script, self._again = script, False
        self._advance_script(script, None)

    def retry_soon(self) -> None:
        """Make the next script due now, or as soon as the running script has succeeded; `run` is
        not called."""
        self._due_ms = min(self._due_ms, self._steady_ms())
        self._again = self._script is not None

    def close(self) -> None:
        """End the running script: its pending answers are ignored. No-op without a script."""
        script, self._script = self._script, None
        if script is not None:
            script.close()

    def _advance_script(self, script: Steps[None], value: object) -> None:
        """Run the script, from `value` on, up to a request without an answer; at its end set when
        the next script is due."""
        while self._script is script:
            reason = ""
            try:
                later = script.send(value)
            except StopIteration:
                wait_ms = self._period_ms
            except (BadResponse, IdentityError, OSError, StoreError) as error:
                reason, wait_ms = str(error), AGAIN_MS
            else:
                if not later.done:
                    later.then(lambda result: self._advance_script(script, result))
                    return
                value = later.value
                continue
            self._script = None
            self._due_ms = self._steady_ms() + (0 if self._again and not reason else wait_ms)
            if reason and reason != self.reason:
                logger.warning("%s: %s", self._stage(), reason)
            self.reason = reason

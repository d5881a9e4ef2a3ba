"""Cuts of a replica's log that wait for the disk: a node never waits."""

from turbopump.engine.replicated import Replicated
from turbopump.engine.types import LogOffset


def truncate_log(log: Replicated, log_end: LogOffset, now_ms: int) -> None:
    """Remove the log from `log_end` on; raises as Replicated.begin_truncation."""
    log._wait_for(log.begin_truncation(log_end, now_ms))


def restart_log(log: Replicated, _now_ms: int) -> None:
    """Remove the whole log; raises as Replicated.begin_restart."""
    log._wait_for(log.begin_restart())

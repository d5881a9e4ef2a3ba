"""Calls that wait for a store's work on disk threads, with which tests prepare a log."""

from turbopump.broker.scheduled.waiting import WaitingMessages
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store


def record_epochs(log: Replicated, epochs: Epochs) -> None:
    """This is the list now, durably. Raises OSError; the old one holds then."""
    ended = log.record_epochs(epochs)
    if not ended.done:
        log._steps.wait_until_idle()
    if ended.value is not None:
        raise ended.value


def look_at_waiting(waiting: WaitingMessages) -> None:
    """Report to the store where the first waiting message lies now."""
    waiting._look, waiting._due_ms = None, 0
    waiting.step(0)
    while waiting._look is not None:
        waiting.step(0)
    waiting._due_ms = 0


def delete_expired(store: Store, now_ms: int) -> int:
    """Remove log files older than fileReservedTime now; returns how many went. Raises OSError."""
    went = store.deleting_expired(now_ms)
    while not went.done:
        store._retention.turn.wait_until_idle()
    if isinstance(went.value, OSError):
        raise went.value
    return went.value

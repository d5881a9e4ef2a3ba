"""Removing a topic's queues; its records stay in the log (store.md 20).

Owns the order of a deletion, and how a replica deletes what its master deleted earlier. It must
never decide that a topic goes. Called by the store.
"""

from turbopump.engine.boundary import whole_before
from turbopump.engine.parts import StoreParts
from turbopump.engine.retention import Retention
from turbopump.engine.types import LogOffset, StoreError


def delete_topic(
    parts: StoreParts, retention: Retention, topic: str, at: int | None, now_ms: int
) -> None:
    """Delete a topic as it was when the log ended at `at`, which was dispatched; None: now.

    Records from there on are of its next life. Their queue units, which were passed over while the
    former queue was in their way, are made again. Raises StoreError.
    """
    log, dispatcher = parts.log, parts.dispatcher
    position = dispatcher.position
    log_end = log.end if at is None else LogOffset(max(at, log.min))
    if log_end < position:
        start = LogOffset(max(log.min, log.segments.start_of(log_end)))
        if whole_before(log, start, log_end)[0] != log_end:
            raise StoreError(f"{topic} cannot be deleted at {log_end}: no record begins there")
    for queue in parts.queues.of_topic(topic):
        parts.checkpointer.forget(queue.slot)
    retention.wait()
    try:
        parts.checkpointer.uncount()
        parts.queues.delete_topic(topic, log_end, log.min)
        parts.batches.delete_topic(topic)
        if parts.extensions is not None:
            parts.extensions.delete_topic(topic)
    except OSError as error:
        raise StoreError(f"the queues of {topic} cannot be removed: {error}") from error
    if log_end < position:
        # Dispatching does nothing twice: of the others' queues and the index all is there.
        dispatcher.start(log_end, position)
        dispatcher.run(position, now_ms)
    parts.checkpointer.request()

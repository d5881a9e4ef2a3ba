"""Storage of pop's records and revived messages.

Owns the outcome of both: resolved once they are as safe as a send. It must never decide the
content.

Tests: tests/unit/broker/handlers/pop/test_acks.py
"""

from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.put_message import Draft, append, put
from turbopump.broker.traffic.role import Put
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage, PutStatus

_REFUSED: Final = PutStatus.OS_PAGE_CACHE_BUSY


def put_record(
    broker: BrokerContext,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: dict[str, str],
    now_ms: int,
    from_ms: int,
) -> Deferred[PutStatus]:
    """Store a check point or an acknowledgement. A record that is due after `from_ms` goes through
    the timers, after the earlier timers."""
    draft = Draft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=now_ms,
        born_host=broker.store_host,
    )
    outcome = put(broker, draft, now_ms, must_wait=True, from_ms=from_ms)
    # A full slot of the timer wheel refuses the record: the consumer tries again.
    return _when_safe(broker, outcome) if isinstance(outcome, Put) else Deferred.resolved(_REFUSED)


def put_message(broker: BrokerContext, message: NewMessage, now_ms: int) -> Deferred[PutStatus]:
    """Store a message unchanged."""
    return _when_safe(broker, append(broker, message, now_ms))


def _when_safe(broker: BrokerContext, outcome: Put) -> Deferred[PutStatus]:
    if outcome.appended.status is not PutStatus.PUT_OK:
        return Deferred.resolved(outcome.appended.status)
    return broker.role.when_safe(*outcome)

"""Texts that RocketMQ's answers share.

Owns remarks that operators know by heart and search for. It must never decide anything.

Tests: tests/unit/broker/traffic/test_fast_path.py
"""

from turbopump.engine.types import PutStatus
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.names import cut_name
from turbopump.net.wire.subscription import SubscriptionData

SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Suffix of remarks for errors that a user can fix."""
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
"""Remark of a replica's answer to sends; clients try another broker."""
SHUT_DOWN_OR_FULL = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk"
    " is full, messages are put to the slave, message store has been shut down, etc."
)
"""Remark for SERVICE_NOT_AVAILABLE when a message cannot be stored."""


def no_filters(subscription: SubscriptionData) -> str:
    """Return the remark of a broker that filters by tags alone (enablePropertyFilter) for a
    subscription of another type."""
    kind = cut_name(subscription.expression_type)
    return f"The broker does not support consumer to filter message by {kind}"


def failure_reply(status: PutStatus, reason: str = "") -> tuple[ResponseCode, str]:
    """Return (code, remark) of the answer for a message that was not stored, or whose storage is
    uncertain; `reason` is appended for an unavailable service. `status` must not be PUT_OK."""
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return ResponseCode.SERVICE_NOT_AVAILABLE, f"{SHUT_DOWN_OR_FULL} {reason}".rstrip()
    if status is PutStatus.OS_PAGE_CACHE_BUSY:
        remark = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        return ResponseCode.SYSTEM_BUSY, remark
    if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
        remark = "create mapped file failed, server is busy or broken."
        return ResponseCode.SYSTEM_ERROR, remark
    if status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
        return ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"
    return ResponseCode.SYSTEM_ERROR, status.value

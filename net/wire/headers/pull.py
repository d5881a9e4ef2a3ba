"""Headers of the pull path (PULL_MESSAGE and LITE_PULL_MESSAGE share them) and its flag bits.

Owns the fields of RocketMQ's PullMessageRequestHeader and PullMessageResponseHeader. It must never
decide about a pull.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field
from typing import Final

from turbopump.net.wire.header import Int32, Int64

# Bits of PullMessageRequest.sys_flag (RocketMQ: PullSysFlag).
COMMIT_OFFSET_FLAG: Final = 1
"""Bit: the pull also commits `commit_offset`."""
SUSPEND_FLAG: Final = 2
"""Bit: the broker may hold the pull until a message arrives."""
SUBSCRIPTION_FLAG: Final = 4
"""Bit: the pull carries its subscription; otherwise the heartbeat's counts."""
CLASS_FILTER_FLAG: Final = 8
"""Bit: a class of a filter server filters the messages."""
LITE_PULL_FLAG: Final = 16
"""Bit: a lite pull, by a consumer with assigned queues."""


@dataclass(slots=True)
class PullMessageRequest:
    """Request PULL_MESSAGE (PullMessageRequestHeader): up to `max_msg_nums` messages from the queue
    offset `queue_offset`. `sys_flag` has the bits above; `suspend_timeout_millis` limits a long
    poll; `sub_version` is that of the subscription in the heartbeat."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class PullMessageResponse:
    """Response to PULL_MESSAGE (PullMessageResponseHeader); each response, found or not, has the
    first four fields: the broker id for the next pull, its queue offset, and the first offset and
    the end of the queue."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None

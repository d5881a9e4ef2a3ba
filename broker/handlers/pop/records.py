"""Records of the revive topic that other brokers send: check points and acknowledgements.

Owns the check of messages that a client may write to the revive topic: only records in RocketMQ's
form, which a broker of a group without a master sends to another group (EscapeBridge). It must
never write.

Tests: tests/unit/broker/pop/test_hostile.py
"""

import re
from collections.abc import Mapping
from typing import Final

from turbopump.engine.types import Buffer
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Acknowledgement,
    CheckPoint,
)

_DUE_MS: Final = re.compile("[0-9]{1,18}")
_STRANGE: Final = (
    names.DELAY,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DEL_UNIQKEY,
    names.TRAN_MSG,
    names.INNER_NUM,
)
"""Properties that no record of RocketMQ's in the revive topic has."""


def why_no_record(properties: Mapping[str, str], body: Buffer) -> str | None:
    """Reason, for a remark, why a message with these properties and body is not a check point or
    acknowledgement in RocketMQ's form; None if it is."""
    for name in _STRANGE:
        if name in properties:
            return f"it has the property {name}"
    due = properties.get(names.TIMER_DELIVER_MS)
    if due is not None and not _DUE_MS.fullmatch(due):
        return f"{names.TIMER_DELIVER_MS} is not a time in ms"
    tag = properties.get(names.TAGS)
    try:
        if tag == CHECK_POINT_TAG:
            CheckPoint.parse(body)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            Acknowledgement.parse(body, tag == BATCH_ACK_TAG)
        else:
            return f"its tag is not {CHECK_POINT_TAG}, {ACK_TAG} or {BATCH_ACK_TAG}"
    except BadBody as error:
        return str(error)
    return None

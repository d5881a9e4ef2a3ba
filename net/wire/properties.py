"""Message properties: their text form and their reserved names.

Owns `name 0x01 value 0x02 ...` and RocketMQ's MessageConst. It must never know the effect of a
property.
"""

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""Property of a copy in a retry topic: the group that popped the message."""
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
CRC32: Final = "__CRC32#"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"

KEY_SEPARATOR: Final = " "
"""Separator of the keys in KEYS."""

RESERVED: Final = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        UNIQ_KEY,
        EXTEND_UNIQ_INFO,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        TRANSACTION_ID,
        TRANSACTION_CHECK_TIMES,
        CHECK_IMMUNITY_TIME,
        TRAN_PREPARED_QUEUE_OFFSET,
        MIN_OFFSET,
        MAX_OFFSET,
        ORIGIN_MESSAGE_ID,
        ORIGIN_GROUP,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
        CONSUME_START_TIME,
        MSG_REGION,
        TRACE_ON,
        TRACE_CONTEXT,
        CLUSTER,
        MSG_TYPE,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        SHARDING_KEY,
        INNER_NUM,
        INNER_BASE,
        INNER_MULTI_DISPATCH,
        INNER_MULTI_QUEUE_OFFSET,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_OUT_MS,
        TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS,
        TIMER_ROLL_TIMES,
        TIMER_DEL_UNIQKEY,
        TIMER_DELAY_LEVEL,
        POP_CK,
        POP_CK_OFFSET,
        FIRST_POP_TIME,
        CRC32,
        BORN_HOST,
        BORN_TIMESTAMP,
        "BUYER_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "DUP_INFO",
        "REDIRECT",
        "PROPERTY_FORWARD_QUEUE_ID",
    }
)
"""Names that a user's own property must not have (RocketMQ: MessageConst.STRING_HASH_SET)."""


def decode_properties(text: bytes | bytearray | memoryview | str) -> dict[str, str]:
    """Decode properties; pairs without a name or value are dropped, the last value of a name
    counts.

    A value may contain 0x01, as in RocketMQ's MessageDecoder.string2messageProperties.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties with a separator after the last pair, as RocketMQ 5 does.

    Raises ValueError for a name or value that contains a separator, because it could not be
    decoded.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(PROPERTY_SEPARATOR) != len(properties):
        raise ValueError("a property holds the separator 0x02")
    if any(NAME_VALUE_SEPARATOR in name for name in properties):
        raise ValueError("the name of a property holds the separator 0x01")
    return text.encode("utf-8", "replace")

"""Message properties: their text form and their reserved names.

Owns `name 0x01 value 0x02 ...` and RocketMQ's MessageConst. It must never know the effect of a
property.
"""

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
"""Separator of a property's name and value."""
PROPERTY_SEPARATOR: Final = "\x02"
"""Separator after each property; the last may lack it."""

# Names of properties; all values are texts.
KEYS: Final = "KEYS"
"""Business keys of the message, separated by KEY_SEPARATOR."""
TAGS: Final = "TAGS"
"""The message's tag, by which consumers filter."""
WAIT: Final = "WAIT"
"""Whether the sender waits for flush and replicas: "false" for no."""
DELAY: Final = "DELAY"
"""Delay level, 1 to 18."""
UNIQ_KEY: Final = "UNIQ_KEY"
"""The client's id of the message."""
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
"""Reserved by RocketMQ; not used here."""
RETRY_TOPIC: Final = "RETRY_TOPIC"
"""Topic to which a message in a retry topic was first sent."""
REAL_TOPIC: Final = "REAL_TOPIC"
"""Topic of a delayed or half message, which is stored in another topic for the time being."""
REAL_QID: Final = "REAL_QID"
"""Queue id that belongs to REAL_TOPIC."""
TRAN_MSG: Final = "TRAN_MSG"
"""Mark of the half message of a transaction: "true"."""
PGROUP: Final = "PGROUP"
"""Producer group of a half message, to which checks are sent."""
TRANSACTION_ID: Final = "__transactionId__"
"""Transaction id of a half message: its UNIQ_KEY."""
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
"""Number of checks sent about a half message."""
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""Seconds after a half message's birth without checks."""
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Queue offset of the first copy of a half message that was stored again."""
MIN_OFFSET: Final = "MIN_OFFSET"
"""First queue offset of the queue at the pull; RocketMQ's clients add it, it is not stored."""
MAX_OFFSET: Final = "MAX_OFFSET"
"""End of the queue at the pull; RocketMQ's clients add it, it is not stored."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""Offset message id of the first copy of a retried message."""
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""Property of a copy in a retry topic: the group that popped the message."""
RECONSUME_TIME: Final = "RECONSUME_TIME"
"""Number of retries in a retry that a client sends as a new message."""
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
"""Limit of retries in a retry that a client sends as a new message."""
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
"""Topic of a dead letter before it failed."""
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
"""Message id of a dead letter before it failed."""
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
"""Epoch ms at which a handler began; RocketMQ's clients set it, it is not stored."""
MSG_REGION: Final = "MSG_REGION"
"""Region id of the broker that stored the message."""
TRACE_ON: Final = "TRACE_ON"
"""Whether clients may write traces about the message: "true" or "false"."""
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
"""Reserved by RocketMQ for the context of traces; not used here."""
CLUSTER: Final = "CLUSTER"
"""Cluster of the broker that stored the message; replies need it."""
MSG_TYPE: Final = "MSG_TYPE"
"""Mark of the reply to a request: "reply"."""
INSTANCE_ID: Final = "INSTANCE_ID"
"""Reserved by RocketMQ; not used here."""
CORRELATION_ID: Final = "CORRELATION_ID"
"""Id that a request and its reply share."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""Client id of the producer that sent a request."""
TTL: Final = "TTL"
"""Time to live of a request: ms from Java clients, seconds from Go."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""Epoch ms at which the requester received a reply; its client adds it."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
"""Epoch ms at which the broker sent a reply to its requester."""
SHARDING_KEY: Final = "__SHARDINGKEY"
"""Key by which the producer chose the queue."""
INNER_NUM: Final = "INNER_NUM"
"""Number of messages in an inner batch."""
INNER_BASE: Final = "INNER_BASE"
"""Queue offset of the first message of an inner batch."""
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
"""Names of further queues (LMQ) for the message, separated by commas."""
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
"""Queue offsets in the queues of INNER_MULTI_DISPATCH, separated by commas."""
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
"""Seconds from storing to delivery; it precedes TIMER_DELAY_MS."""
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
"""Milliseconds from storing to delivery; it precedes TIMER_DELIVER_MS."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""Epoch ms of delivery."""
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""Epoch ms of a stored timer's slot; a message with it is not scheduled again."""
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
"""Epoch ms, in whole slots, at which the timer was put into the wheel; in a rolled timer the begin
of its delay."""
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
"""Epoch ms at which the timer was delivered."""
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
"""Number of times that a timer was put into the wheel again, because it was due too late for it."""
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
"""UNIQ_KEY of the timer that a recall, itself a timer, deletes; perhaps with its topic."""
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
"""Reserved by RocketMQ; not used here."""
POP_CK: Final = "POP_CK"
"""Handle of a popped message (net/wire/pop_handles.py); not stored."""
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
"""Reserved by RocketMQ for pops; not used here."""
FIRST_POP_TIME: Final = "1ST_POP_TIME"
"""Epoch ms of the first pop of a message in a retry topic."""
CRC32: Final = "__CRC32#"
"""CRC of a record in its properties: ten digits, the last digit first."""
BORN_HOST: Final = "__BORNHOST"
"""Host name of the gRPC client that sent the message."""
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
"""Epoch ms at which the gRPC client made the message."""

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
    """Decode properties to name and value, in their order; pairs without a name or value are
    dropped, the last value of a name counts, malformed UTF-8 is replaced. Raises nothing.

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
    """Encode properties as UTF-8, in their order, with a separator after the last pair, as RocketMQ
    5 does. The size is not limited.

    Raises ValueError for a name or value that contains a separator, because it could not be
    decoded.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(PROPERTY_SEPARATOR) != len(properties):
        raise ValueError("a property holds the separator 0x02")
    if any(NAME_VALUE_SEPARATOR in name for name in properties):
        raise ValueError("the name of a property holds the separator 0x01")
    return text.encode("utf-8", "replace")

"""Valid names: topics, groups, and other texts by which a peer names something.

Owns RocketMQ's rules (common/topic/TopicValidator, client/Validators) and the lengths of names that
RocketMQ does not check. It must never know a table. Brokers, name servers and controllers check a
name before they keep it or look for it on a disk. Names of a store's folders are checked in
engine/disk/store_paths.py: the store does not rely on its callers.

Tests: tests/unit/broker/tables/test_tables.py
"""

import re
from typing import Any, Final

from turbopump.engine import types
from turbopump.net.wire.bodies import BadBody, read_text

MAX_TOPIC_LENGTH: Final = 127
"""Maximum characters of a topic name: it fits the length byte of a V1 record."""
MAX_RETRY_TOPIC_LENGTH: Final = 255
"""Maximum characters of a %RETRY% or %DLQ% topic name; V2 records."""
MAX_GROUP_LENGTH: Final = 120
"""Maximum characters of a group name: %RETRY%group must fit a topic of 127 characters."""
MAX_ANY_NAME_LENGTH: Final = 255
"""Maximum characters of a broker's, a cluster's or a client's name, an address, a key: RocketMQ's
limit for any name (Validators.CHARACTER_MAX_LENGTH). RocketMQ does not check these, but its clients
send no longer ones."""

REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""Prefix of a cluster's topic with the check points of pops (PopAckConstants.REVIVE_TOPIC)."""
SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of topics for the coordination inside a broker group; their routes at a name server of
RocketMQ 4 list the members with their real ids."""
RETRY_PREFIX: Final = types.RETRY_PREFIX
"""Prefix of a group's retry topic: `%RETRY%group`, and for pops `%RETRY%group+topic`."""
DLQ_PREFIX: Final = "%DLQ%"
"""Prefix of the topic with a group's dead letters: `%DLQ%group`."""

SCHEDULE_TOPIC: Final = types.SCHEDULE_TOPIC
"""The topic of delayed messages; each delay level has a queue."""
AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose configuration a broker copies when it creates a topic by itself."""
HALF_TOPIC: Final = types.HALF_TOPIC
"""The topic of half messages: their transaction has not ended."""
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The topic of op messages, which name the half messages whose transaction has ended."""
HALF_QUEUE_ID: Final = 0
"""Queue id of all transaction records, in these two topics and in GIVEN_UP_TOPIC: RocketMQ uses no
other."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""The topic of message traces, which clients write."""
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of half messages given up after too many checks."""
BENCHMARK_TOPIC: Final = "BenchmarkTest"
"""The topic of RocketMQ's benchmarks."""
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
"""A system topic of RocketMQ's brokers."""
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
"""A system topic of RocketMQ's brokers, for events of moved offsets."""
SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
    }
)
"""Topics that no client may create or delete (RocketMQ: TopicValidator)."""

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group by which tools read (MixAll.TOOLS_CONSUMER_GROUP)."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The brokers' own group, whose offsets in HALF_TOPIC and OP_TOPIC mark how far transactions are
finished."""
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace whose keys are topics, its values `broker:queues;broker2:queues`."""

_SYSTEM_PREFIX: Final = "rmq_sys_"
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def validate_topic_name(name: str) -> str | None:
    """Check a topic's name; returns the error in RocketMQ's words (TopicValidator), None if it is
    valid."""
    if not name.strip():
        return "The specified topic is blank."
    if _LEGAL.fullmatch(name) is None:
        return (
            f"The specified topic: {cut_name(name)}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(name) > MAX_RETRY_TOPIC_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {cut_name(name)}, and it's longer than"
                f" topic max length: {MAX_RETRY_TOPIC_LENGTH}"
            )
    elif len(name) > MAX_TOPIC_LENGTH:
        return (
            f"The specified topic: {cut_name(name)}, is longer than"
            f" topic max length: {MAX_TOPIC_LENGTH}"
        )
    return None


def is_system_topic(name: str) -> bool:
    """Whether a topic is in SYSTEM_TOPICS or begins with `rmq_sys_` (RocketMQ:
    TopicValidator.isSystemTopic)."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)


def validate_group_name(name: str) -> str | None:
    """Check a group's name; returns the error in RocketMQ's words (TopicValidator), None if it is
    valid."""
    if not name.strip():
        return "The specified group is blank."
    if _LEGAL.fullmatch(name) is None:
        return (
            f"The specified group: {cut_name(name)}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > MAX_GROUP_LENGTH:
        return (
            f"The specified group: {cut_name(name)}, is longer than"
            f" group max length: {MAX_GROUP_LENGTH}"
        )
    return None


def check_lengths(**texts: str | None) -> str | None:
    """Check that names have at most MAX_ANY_NAME_LENGTH characters, which RocketMQ does not check;
    returns the error about the first longer name, None if all are valid. None is valid.

    The keywords name the texts in the error.
    """
    for name, value in texts.items():
        if value is not None and len(value) > MAX_ANY_NAME_LENGTH:
            return f"{name} has {len(value)} characters, it may have {MAX_ANY_NAME_LENGTH}"
    return None


def name_member(members: dict[str, Any], name: str, default: str = "") -> str:
    """Read a text member of a bean that is a name; missing and null are the default. Raises BadBody
    if it is no text, or longer than MAX_ANY_NAME_LENGTH."""
    value = read_text(members, name, default)
    wrong = check_lengths(**{name: value})
    if wrong is not None:
        raise BadBody(wrong)
    return value


def kept_size(*texts: str) -> int:
    """Estimate the memory, in bytes, of a peer's texts in a table: for tables with a limit of
    memory."""
    return sum(60 + len(one) if one.isascii() else 80 + 4 * len(one) for one in texts)


def cut_name(name: str) -> str:
    """The name for a remark or the log: beyond MAX_ANY_NAME_LENGTH characters cut, with `...`."""
    return name if len(name) <= MAX_ANY_NAME_LENGTH else f"{name[:MAX_ANY_NAME_LENGTH]}..."

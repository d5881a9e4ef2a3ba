"""What a master's answers to a replica say: read, checked, merged with what is here.

Owns the bounds of such answers and the rule of merging tables by name. It must never change a
table. Called by metadata/pulling.py.

A master may be damaged, hostile, or a RocketMQ of another version: an answer that cannot be read is
refused as a whole, an entry that no broker should have is left out and named.
"""

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from turbopump.broker.config.config import MAX_QUEUES_OF_TOPIC
from turbopump.broker.tables.groups import MAX_BEAN, MAX_GROUPS, read_bans, read_deleted
from turbopump.broker.tables.topic_attributes import MAX_ATTRIBUTES_TEXT
from turbopump.broker.tables.topics import (
    DELETED_TIMES,
    DELETED_TOPICS,
    MAX_DELETED_TOPICS,
    MAX_TOPICS,
    QUEUE_COUNTS,
)
from turbopump.broker.tables.versions import is_older
from turbopump.engine.disk.store_paths import is_folder_name
from turbopump.engine.later import Later
from turbopump.engine.queues.queue_counts import Counts, read_counts
from turbopump.engine.timer.timer_check import TimerCheckpoint, decode
from turbopump.engine.types import LogOffset
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody, as_int, as_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.admin import (
    GetAllSubscriptionGroupRequest,
    GetAllTopicConfigRequest,
)
from turbopump.net.wire.names import MAX_RETRY_TOPIC_LENGTH, validate_topic_name
from turbopump.net.wire.topics import (
    MULTI_TAG,
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    SINGLE_TAG,
    DataVersion,
    TopicConfig,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], object]
Steps = Generator[Command | Work | Later[Any] | None, Any, T]
"""Asks requests, is sent their answers, gives what they came to. What is asked may also be work for
another thread, or that is under way; its result is sent then. None: others have the loop first.
Raises BadBody."""

MAX_INLINE: Final = 128 << 10
"""Bytes of a body that are read at once, some 5 ms; a larger one is read by another thread."""

PAGE: Final = 2_000
"""Entries asked for at once, as a RocketMQ replica does (splitMetadataSize)."""
MAX_PAGES: Final = 1_000
"""Of one table: a master that gives a few entries at a time does not hold us up for ever."""
MAX_TABLE: Final = 48 << 20
"""Bytes of all pages of a table: as a file it has to be read again, of which 64 MiB are."""
MAX_STARTS: Final = 3
"""A table that changes between two pages is begun again so often, then at the next round."""
MAX_NAMED: Final = 5
"""Refused entries that are named in the log."""
MAX_CLOCK_AHEAD_MS: Final = 7 * 24 * 3_600_000
"""Of a clock of the master; as far as a timer wheel reaches."""
MAX_GROUP_NAME: Final = 255
"""A group that was made before names were limited to 120."""

_ALL_PERMS: Final = PERM_INHERIT | PERM_WRITE | PERM_READ | PERM_PRIORITY


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a master: its entries by name, and what else the body says."""

    version: DataVersion
    entries: dict[str, Any]
    members: dict[str, Any]


def checked(answer: Command) -> dict[str, Any]:
    """The body of an answer that is a success. Raises BadBody."""
    if answer.code != ResponseCode.SUCCESS:
        raise BadBody(f"answered with code {answer.code}: {(answer.remark or '')[:200]}")
    return bodies.load_object(answer.body)


def read(answer: Command, reader: Callable[[Any], T]) -> Steps[T]:
    """What `reader` makes of the body of an answer that is a success."""

    def work() -> T | ValueError:
        try:
            return reader(checked(answer))
        except BadBody as error:
            return error

    result = work() if len(answer.body) <= MAX_INLINE else (yield work)
    if isinstance(result, Exception):
        raise BadBody(str(result))
    return cast(T, result)


def all_topics(counts: bool = False) -> Steps[Table]:
    """21, page by page; `counts`: with how far idle queues have counted, if a master of ours
    answers."""
    fields = {DELETED_TOPICS: "true"} | ({QUEUE_COUNTS: "true"} if counts else {})
    return _pages(
        lambda first, version: new_request(
            RequestCode.GET_ALL_TOPIC_CONFIG,
            GetAllTopicConfigRequest(first, version, PAGE),
            fields=fields,
        ),
        "totalTopicNum",
        "topicConfigTable",
    )


def all_groups() -> Steps[Table]:
    """201, page by page."""
    return _pages(
        lambda first, version: new_request(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            GetAllSubscriptionGroupRequest(first, version, PAGE),
        ),
        "totalGroupNum",
        "subscriptionGroupTable",
    )


def _pages(ask: Callable[[int, str], Command], total_name: str, table_name: str) -> Steps[Table]:
    """A broker before 5.3 knows no pages: it gives all at once and names no total."""
    for _ in range(MAX_STARTS):
        found: Table | None = None
        size = 0
        for _ in range(MAX_PAGES):
            first, text = (0, "") if found is None else (len(found.entries), _text(found.version))
            answer = yield ask(first, text)
            members = yield from read(answer, as_object)
            size += len(answer.body)
            if size > MAX_TABLE:
                raise BadBody(f"{table_name} has over {MAX_TABLE} bytes")
            page = as_object(members.get(table_name) or {})
            version = DataVersion.from_json(members.get("dataVersion"))
            if found is None:
                found = Table(version, page, members)
            elif version == found.version:
                page = {name: one for name, one in page.items() if name not in found.entries}
                found.entries.update(page)
            else:
                break
            total = answer.fields.get(total_name)
            if total is None or len(found.entries) >= as_int(total, total_name):
                return found
            if not page:
                raise BadBody(f"{table_name} lacks some of its {total} entries")
    raise BadBody(f"{table_name} changes from page to page, or has too many")


def _text(version: DataVersion) -> str:
    return version.encode().decode()


def log_end() -> Steps[LogOffset]:
    """Where the master's log ends now (28, which every RocketMQ has)."""
    return log_end_of((yield new_request(RequestCode.GET_BROKER_RUNTIME_INFO)))


def log_end_of(answer: Command) -> LogOffset:
    """Where a broker's log ends, of its answer to 28. Raises BadBody."""
    members = as_object(checked(answer).get("table"))
    end = bodies.number(members, "commitLogMaxOffset", -1)
    if end < 0:
        raise BadBody("it does not say where its log ends")
    return LogOffset(end)


def timer_checkpoint(answer: Command, now_ms: int) -> TimerCheckpoint:
    """The master's progress with its timers. Raises BadBody; also for a time that no clock of a
    master can show: a broker that believed it would deliver nothing before."""
    body = answer.body
    try:
        found = decode(b"".join(body) if isinstance(body, list) else body)
    except ValueError as error:
        raise BadBody(str(error)) from None
    if found.read_ms > now_ms + MAX_CLOCK_AHEAD_MS:
        raise BadBody(f"timers up to {found.read_ms} were delivered, and it is {now_ms}")
    return found


def topics_of(table: Table) -> dict[str, TopicConfig]:
    """The topics a broker may have."""
    return _readable(table.entries, _topic, "topic")


def groups_of(table: Table) -> dict[str, SubscriptionGroupConfig]:
    """The groups a broker may have."""
    return _readable(table.entries, _group, "group")


def bans_of(table: Table) -> dict[str, dict[str, int]]:
    """Group to topic to mask. Raises BadBody."""
    return read_bans(table.members)


def deleted_groups_of(table: Table) -> dict[str, int]:
    """Group to the time of its last deletion with its offsets, in epoch ms. Raises BadBody."""
    return read_deleted(table.members)


def deleted_of(table: Table) -> dict[str, LogOffset]:
    """Topic to the end of the log when it was deleted; only masters of ours say so."""
    ends = bodies.table(table.members, DELETED_TOPICS, partial(as_int, name=DELETED_TOPICS))
    last = list(ends.items())[-MAX_DELETED_TOPICS:]
    return {name: LogOffset(end) for name, end in last if end >= 0 and is_folder_name(name)}


def deletion_times_of(table: Table) -> dict[str, int]:
    """Topic to the time of its last deletion at the master, in epoch ms. Raises BadBody."""
    times = bodies.table(table.members, DELETED_TIMES, partial(as_int, name=DELETED_TIMES))
    return {name: at_ms for name, at_ms in times.items() if at_ms > 0}


def may_count(table: Table) -> bool:
    """Whether the broker that gave this knows how far idle queues have counted, or will once it
    serves as the master. RocketMQ's never does."""
    return DELETED_TOPICS in table.members


def counts_of(table: Table) -> Counts | None:
    """How far the master's idle queues have counted, None if it does not say. Raises BadBody."""
    value = table.members.get(QUEUE_COUNTS)
    if value is None:
        return None
    try:
        return read_counts(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadBody(f"{QUEUE_COUNTS} are none: {error}") from None


def _readable(entries: Mapping[str, Any], read: Callable[[str, Any], T], kind: str) -> dict[str, T]:
    found, refused = {}, []
    for name, value in entries.items():
        try:
            found[name] = read(name, value)
        except BadBody as error:
            refused.append(f"{name[:80]!r} ({error})")
    if refused:
        named = ", ".join(refused[:MAX_NAMED])
        logger.warning("%d %ss of the master are left out: %s", len(refused), kind, named)
    return found


def _topic(name: str, value: Any) -> TopicConfig:
    topic = TopicConfig.from_json(value)
    if topic.topic_name != name:
        raise BadBody("it has another name inside")
    wrong = validate_topic_name(name)
    if wrong is not None and (len(name) > MAX_RETRY_TOPIC_LENGTH or "longer" not in wrong):
        raise BadBody("no name of a topic")
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES_OF_TOPIC:
            raise BadBody(f"{queues} queues")
    if not 0 <= topic.perm <= _ALL_PERMS:
        raise BadBody(f"perm {topic.perm}")
    if topic.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
        raise BadBody("unknown topicFilterType")
    if sum(len(key) + len(text) for key, text in topic.attributes.items()) > MAX_ATTRIBUTES_TEXT:
        raise BadBody("its attributes are too long")
    return topic


def _group(name: str, value: Any) -> SubscriptionGroupConfig:
    group = SubscriptionGroupConfig.from_json(value)
    if group.group_name != name or not name.strip() or len(name) > MAX_GROUP_NAME:
        raise BadBody("no name of a group")
    if len(group.encode()) > MAX_BEAN:
        raise BadBody("it is too long")
    return group


def merged(
    mine: Mapping[str, T],
    version: DataVersion,
    theirs: Mapping[str, T],
    their_version: DataVersion,
    gone: Collection[str],
) -> dict[str, T]:
    """A table of both: of what both have the newer table's entry, and nothing of `gone`.

    What only one of them has stays: the master may be the one that lost it (R20, R21).
    """
    older = is_older(their_version, version)
    result = {**theirs, **mine} if older else {**mine, **theirs}
    for name in gone:
        result.pop(name, None)
    return result


def check_count(entries: Collection[str], limit: int, kind: str) -> None:
    """Raises BadBody if a table would have more than a broker may."""
    if len(entries) > limit:
        raise BadBody(f"{len(entries)} {kind}s, a broker holds at most {limit}")


def check_topics(topics: Collection[str]) -> None:
    """See `check_count`."""
    check_count(topics, MAX_TOPICS, "topic")


def check_groups(groups: Collection[str]) -> None:
    """See `check_count`."""
    check_count(groups, MAX_GROUPS, "group")

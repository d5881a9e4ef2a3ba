"""A master's answers to a replica: read, object_of_success and merged with the local tables.

Owns the limits of such answers and the rule of merging tables by name. No table is changed here.

A master may be damaged, hostile, or a RocketMQ of another version: an unreadable answer is refused
as a whole, an invalid entry is left out and logged.
"""

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from turbopump.broker.config.config import MAX_QUEUES_OF_TOPIC
from turbopump.broker.tables.data_versions import is_older
from turbopump.broker.tables.groups import (
    MAX_BEAN,
    MAX_GROUPS,
    MAX_SIZE,
    GroupTable,
    read_bans,
    read_deleted,
)
from turbopump.broker.tables.topic_attributes import MAX_ATTRIBUTES_TEXT
from turbopump.broker.tables.topics import (
    DELETED_TIMES,
    DELETED_TOPICS,
    MAX_DELETED_TOPICS,
    MAX_TOPICS,
    QUEUE_COUNTS,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.store_paths import is_folder_name
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
"""Work that a disk thread runs; it touches no shared state."""
Steps = Generator[Command | Work | Deferred[Any] | None, Any, T]
"""A script that returns T or raises BadBody. It yields a request and is sent its answer, yields
work for another thread and is sent its result, yields a Deferred and is sent its value, or yields
None to let the loop serve others first. If an answer is missing, a driver sends the reason, a text,
or ends the script."""

MAX_INLINE: Final = 128 << 10
"""Bytes of a body that are read at once, some 5 ms; a larger one is read by another thread."""

PAGE: Final = 2_000
"""Entries requested at once, as by a RocketMQ replica (splitMetadataSize)."""
MAX_PAGES: Final = 1_000
"""Pages of a table at most: a master that sends a few entries at a time must not hold up
copying."""
MAX_TABLE: Final = 48 << 20
"""Bytes of all pages of a table at most: as a file it can be read again up to 64 MiB."""
MAX_STARTS: Final = 3
"""Maximum attempts to read a table that changes between two pages."""
MAX_NAMED: Final = 5
"""Maximum number of refused entries that a log line names."""
MAX_CLOCK_AHEAD_MS: Final = 7 * 24 * 3_600_000
"""Maximum of a master's clock ahead of this one, in ms; as far as a timer wheel reaches."""
MAX_GROUP_NAME: Final = 255
"""Maximum characters of a group's name: those made before the limit of 120 are accepted."""

_ALL_PERMS: Final = PERM_INHERIT | PERM_WRITE | PERM_READ | PERM_PRIORITY


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a master, as its answers contain it: its entries by name, its version, and other
    members of the body."""

    version: DataVersion
    """Version of the table: of all pages."""
    entries: dict[str, Any]
    """JSON value of each entry, unchecked, by the name of the topic or group; of all pages."""
    members: dict[str, Any]
    """All JSON members of the first page's body."""


def object_of_success(response: Command) -> dict[str, Any]:
    """Return the JSON object in the body of a successful answer. Raises BadBody, also for an answer
    with another code."""
    if response.code != ResponseCode.SUCCESS:
        raise BadBody(f"answered with code {response.code}: {(response.remark or '')[:200]}")
    return bodies.load_object(response.body)


def read(response: Command, reader: Callable[[Any], T]) -> Steps[T]:
    """Return `reader(body)` for the JSON object of a successful answer; a large body is read by
    another thread, so `reader` must touch no shared state. Raises BadBody, its own and the
    reader's."""

    def parse_response() -> T | ValueError:
        try:
            return reader(object_of_success(response))
        except BadBody as error:
            return error

    result = parse_response() if len(response.body) <= MAX_INLINE else (yield parse_response)
    if isinstance(result, Exception):
        raise BadBody(str(result))
    return cast(T, result)


def request_all_topics(counts: bool = False) -> Steps[Table]:
    """Request all topics of the master page by page (21), with the deletions of topics. `counts`:
    also with the counts of idle queues, if the master supports them (see `idle_queue_counts`)."""
    fields = {DELETED_TOPICS: "true"} | ({QUEUE_COUNTS: "true"} if counts else {})
    return _request_pages(
        lambda first, version: new_request(
            RequestCode.GET_ALL_TOPIC_CONFIG,
            GetAllTopicConfigRequest(first, version, PAGE),
            fields=fields,
        ),
        "totalTopicNum",
        "topicConfigTable",
    )


def request_all_groups() -> Steps[Table]:
    """Request all subscription groups of the master page by page (201), with their bans and
    deletions."""
    return _request_pages(
        lambda first, version: new_request(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            GetAllSubscriptionGroupRequest(first, version, PAGE),
        ),
        "totalGroupNum",
        "subscriptionGroupTable",
    )


def _request_pages(
    ask: Callable[[int, str], Command], total_name: str, table_name: str
) -> Steps[Table]:
    """Request a table page by page: `ask(first, version)` makes the request for the page from index
    `first` on. A broker before 5.3 has no pages: it sends all entries and no total."""
    for _ in range(MAX_STARTS):
        found: Table | None = None
        size = 0
        for _ in range(MAX_PAGES):
            first, text = (
                (0, "") if found is None else (len(found.entries), _version_text(found.version))
            )
            response = yield ask(first, text)
            members = yield from read(response, as_object)
            size += len(response.body)
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
            total = response.fields.get(total_name)
            if total is None or len(found.entries) >= as_int(total, total_name):
                return found
            if not page:
                raise BadBody(f"{table_name} lacks some of its {total} entries")
    raise BadBody(f"{table_name} changed between pages, or has too many pages")


def _version_text(version: DataVersion) -> str:
    """The version as JSON text, for a request."""
    return version.encode().decode()


def log_end() -> Steps[LogOffset]:
    """Request the log offset after the last byte of the master's log (28, which every RocketMQ
    has)."""
    return log_end_of((yield new_request(RequestCode.GET_BROKER_RUNTIME_INFO)))


def log_end_of(response: Command) -> LogOffset:
    """Read the log offset after the last byte of a broker's log from its answer to 28. Raises
    BadBody."""
    members = as_object(object_of_success(response).get("table"))
    end = bodies.read_int64(members, "commitLogMaxOffset", -1)
    if end < 0:
        raise BadBody("its answer lacks the end of its log")
    return LogOffset(end)


def read_timer_checkpoint(response: Command, now_ms: int) -> TimerCheckpoint:
    """Read the master's progress of timers from its answer to 60; `now_ms` is the wall clock, in ms
    since 1970. Raises BadBody, also for a progress over MAX_CLOCK_AHEAD_MS after `now_ms`: with it
    a broker would deliver nothing before that time."""
    body = response.body
    try:
        found = decode(b"".join(body) if isinstance(body, list) else body)
    except ValueError as error:
        raise BadBody(str(error)) from None
    if found.read_ms > now_ms + MAX_CLOCK_AHEAD_MS:
        raise BadBody(
            f"its timers were delivered up to {found.read_ms}, far after the time here, {now_ms}"
        )
    return found


def topics_of(table: Table) -> dict[str, TopicConfig]:
    """Return the valid topics of a table by name; invalid entries are left out and logged."""
    return _read_entries(table.entries, _read_topic, "topic")


def groups_of(table: Table) -> dict[str, SubscriptionGroupConfig]:
    """Return the valid groups of a table by name; invalid entries are left out and logged."""
    return _read_entries(table.entries, _read_group, "group")


def bans_of(table: Table) -> dict[str, dict[str, int]]:
    """Return the bans of a table of groups: by group, then by topic, RocketMQ's mask of forbidden
    operations. Raises BadBody."""
    return read_bans(table.members)


def deleted_groups_of(table: Table) -> dict[str, int]:
    """Return, by group, the time of its last deletion together with its offsets, in ms since 1970.
    Raises BadBody."""
    return read_deleted(table.members)


def deleted_of(table: Table) -> dict[str, LogOffset]:
    """Return, by topic, the log offset at which the master's log ended at the topic's last
    deletion, for at most MAX_DELETED_TOPICS; only masters of this project send it. Raises
    BadBody."""
    ends = bodies.read_table(table.members, DELETED_TOPICS, partial(as_int, name=DELETED_TOPICS))
    last = list(ends.items())[-MAX_DELETED_TOPICS:]
    return {name: LogOffset(end) for name, end in last if end >= 0 and is_folder_name(name)}


def deletion_times_of(table: Table) -> dict[str, int]:
    """Return, by topic, the time of its last deletion at the master, in ms since 1970; topics with
    an unknown time are left out. Raises BadBody."""
    times = bodies.read_table(table.members, DELETED_TIMES, partial(as_int, name=DELETED_TIMES))
    return {name: at_ms for name, at_ms in times.items() if at_ms > 0}


def may_know_idle_counts(table: Table) -> bool:
    """Whether the sender of a table of topics knows the counts of idle queues, or will once it
    serves as the master: True for a broker of this project, False for RocketMQ's."""
    return DELETED_TOPICS in table.members


def idle_queue_counts(table: Table) -> Counts | None:
    """Return, by topic and queue id, the next queue offset of the master's queues without a message
    in its log; None if the master sent no such member. Raises BadBody."""
    value = table.members.get(QUEUE_COUNTS)
    if value is None:
        return None
    try:
        return read_counts(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadBody(f"{QUEUE_COUNTS} is malformed: {error}") from None


def _read_entries(
    entries: Mapping[str, Any], read: Callable[[str, Any], T], kind: str
) -> dict[str, T]:
    """Return the entries that `read(name, value)` accepts; entries for which it raises BadBody are
    left out and logged. `kind` is their noun."""
    found, refused = {}, []
    for name, value in entries.items():
        try:
            found[name] = read(name, value)
        except BadBody as error:
            refused.append(f"{name[:80]!r} ({error})")
    if refused:
        named = ", ".join(refused[:MAX_NAMED])
        logger.warning("ignored %d %ss of the master: %s", len(refused), kind, named)
    return found


def _read_topic(name: str, value: Any) -> TopicConfig:
    """Read and check a topic's configuration. Raises BadBody."""
    topic = TopicConfig.from_json(value)
    if topic.topic_name != name:
        raise BadBody("its configuration has another name")
    wrong = validate_topic_name(name)
    if wrong is not None and (len(name) > MAX_RETRY_TOPIC_LENGTH or "longer" not in wrong):
        raise BadBody("its name is not valid for a topic")
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


def _read_group(name: str, value: Any) -> SubscriptionGroupConfig:
    """Read and check a group's configuration. Raises BadBody."""
    group = SubscriptionGroupConfig.from_json(value)
    if group.group_name != name or not name.strip() or len(name) > MAX_GROUP_NAME:
        raise BadBody("its name is not valid for a group")
    if len(group.encode()) > MAX_BEAN:
        raise BadBody("its configuration is too long")
    return group


def merge_tables(
    mine: Mapping[str, T],
    version: DataVersion,
    theirs: Mapping[str, T],
    their_version: DataVersion,
    gone: Collection[str],
) -> dict[str, T]:
    """Return a new table: entries in both come from the table with the newer version (`theirs` if
    they are equal), names in `gone` are left out.

    Entries in only one table stay: the master may be the broker that lost them (R20, R21).
    """
    older = is_older(their_version, version)
    result = {**theirs, **mine} if older else {**mine, **theirs}
    for name in gone:
        result.pop(name, None)
    return result


def check_count(entries: Collection[str], limit: int, kind: str) -> None:
    """Raise BadBody if there are more than `limit` entries; `kind` is their noun in the error's
    text."""
    if len(entries) > limit:
        raise BadBody(f"{len(entries)} {kind}s, a broker holds at most {limit}")


def check_topics(topics: Collection[str]) -> None:
    """Raise BadBody if there are more than MAX_TOPICS topics."""
    check_count(topics, MAX_TOPICS, "topic")


def check_groups(groups: Collection[str]) -> None:
    """Raise BadBody if there are more than MAX_GROUPS groups."""
    check_count(groups, MAX_GROUPS, "group")


def check_size(table: GroupTable, groups: Collection[SubscriptionGroupConfig]) -> None:
    """Raise BadBody if the table would have more than MAX_SIZE bytes with these groups."""
    size = table.size_with(groups)
    if size > max(MAX_SIZE, table.size):
        raise BadBody(f"groups of {size} bytes, a broker holds at most {MAX_SIZE}")

"""Delivery mode (pull or pop) and queue sharing of groups, by topic: messageRequestMode.json.

Owns RocketMQ's table of modes, and Turbopump's own members, which a RocketMQ broker ignores:
whether brokers or members share the queues, the strategy, and the queues of CONFIG. It must never
decide an assignment.

Tests: tests/unit/broker/assignment/test_modes.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.disk.config_files import pieces_of
from turbopump.engine.disk.json_table import Content
from turbopump.net.allocation.shares import Shares
from turbopump.net.allocation.strategies import is_strategy
from turbopump.net.wire.bodies import (
    BadBody,
    as_object,
    as_text,
    encode_json,
    read_int32,
    read_list,
    read_table,
    read_text,
)
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.queues import MessageQueue

FILE_NAME: Final = "messageRequestMode.json"
"""Name of the table's file in the config folder."""
MAP: Final = "messageRequestModeMap"
"""Member of the file, and of the answer to 402: topic to group to settings."""
MAX_SIZE: Final = 4 << 20
"""Maximum bytes of the table as JSON, some 40,000 groups; a larger table of a master is refused."""

PULL, POP = "PULL", "POP"
"""Values of `GroupMode.mode`."""
BY_BROKER, BY_CLIENT = "BROKER", "CLIENT"
"""Values of `GroupMode.rebalance`: the group's coordinator, or each member by itself, shares out
the queues."""
ALL_TOPICS: Final = "*"
"""Topic of the entry for all topics of a group; a topic's own entry has precedence, member by
member. Turbopump's own."""

_MEMBERS: Final[tuple[str, ...]] = ("topic", "consumerGroup", "mode", "popShareQueueNum")
_OURS: Final[tuple[str, ...]] = ("rebalance", "strategyName", "queues")


class FullTable(Exception):
    """A request 401 is refused: with its entry the table would exceed MAX_SIZE."""


@dataclass(frozen=True, slots=True)
class GroupMode:
    """Settings of a group for a topic; "", None and {} mean not set.

    `mode` is PULL or POP; in mode POP a member also pops the queues of the next
    `pop_share_queue_num` members, 0 or less: of all; `rebalance` is BY_BROKER or BY_CLIENT;
    `strategy` names the allocation strategy; `fixed` are the queues by client id for the strategy
    CONFIG.
    """

    mode: str = ""
    pop_share_queue_num: int | None = None
    rebalance: str = ""
    strategy: str = ""
    fixed: Shares = field(default_factory=dict)


class RequestModes:
    """Table of the settings of request 401, from topic to group: delivery by pull or pop and the
    sharing of queues; saved in messageRequestMode.json. Loop thread only."""

    def __init__(self, saver: TableSaver) -> None:
        self._saver = saver
        self._modes: dict[str, Any] = {}
        self._read: dict[tuple[str, str], GroupMode] = {}

    def load(self) -> None:
        """Read messageRequestMode.json, RocketMQ's or Turbopump's, if it exists. Raises ConfigError
        for malformed content, StoreError if the file cannot be read."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is not None:
            try:
                self._modes = read_table(as_object(saved), MAP, as_object)
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def adopt_modes(self, members: dict[str, Any]) -> None:
        """Replace the table by the members of a master's answer to 402; if it differs, the file is
        written soon. Raises BadBody, and then nothing has changed."""
        modes = read_table(members, MAP, as_object)
        if modes == self._modes:
            return
        if len(encode_json(modes)) > MAX_SIZE:
            raise BadBody(f"{MAP} has over {MAX_SIZE} bytes")
        self._replace_table(modes)

    def get(self, topic: str, group: str) -> GroupMode:
        """The group's settings for the topic: of its own entry, and for members that it lacks, of
        the entry for ALL_TOPICS. A malformed entry counts as no settings."""
        key = topic, group
        found = self._read.get(key)
        if found is None:
            own, all_topics = self._find_entry(topic, group), self._find_entry(ALL_TOPICS, group)
            found = _mode_of(topic, {**all_topics, **own})
            if len(self._read) >= 10_000:
                self._read.clear()
            self._read[key] = found
        return found

    def is_set_to_pull(self, topic: str, group: str) -> bool:
        """Whether a request has set the group to PULL for the topic or all topics; defaults do not
        count."""
        return self.get(topic, group).mode == "PULL"

    def put(self, members: Mapping[str, Any]) -> None:
        """Apply the body of a request 401 and have the file written soon: RocketMQ's members are
        replaced, Turbopump's own members that it omits stay. Raises BadBody for impossible values,
        FullTable."""
        entry = {name: members[name] for name in (*_MEMBERS, *_OURS) if name in members}
        topic, group = read_text(entry, "topic"), read_text(entry, "consumerGroup")
        _check_entry(topic, entry)
        known = self._find_entry(topic, group)
        ours = {name: known[name] for name in _OURS if name in known}
        if topic == ALL_TOPICS:
            ours = known
        groups = as_object(self._modes.get(topic, {}))
        modes = {**self._modes, topic: {**groups, group: {**ours, **entry}}}
        if len(encode_json(modes)) > MAX_SIZE:
            raise FullTable(f"the modes of all groups need more than {MAX_SIZE} bytes")
        self._replace_table(modes)

    def to_json(self) -> dict[str, Any]:
        """The content of the file, which is also the answer to 402; it must not be changed."""
        return {MAP: self._modes}

    def _find_entry(self, topic: str, group: str) -> dict[str, Any]:
        """Return the members of the entry of topic and group; {} if it is missing or malformed."""
        groups = self._modes.get(topic)
        entry = groups.get(group) if isinstance(groups, dict) else None
        return entry if isinstance(entry, dict) else {}

    def _replace_table(self, modes: dict[str, Any]) -> None:
        """Replace the table, and have the file written soon."""
        self._modes = modes
        self._read.clear()
        self._saver.save_changed(FILE_NAME, self._content)

    def _content(self) -> Content:
        """The whole content of the file."""
        return partial(pieces_of, self.to_json())


def _mode_of(topic: str, entry: dict[str, Any]) -> GroupMode:
    """Return the settings in an entry; empty if it is malformed, since a RocketMQ broker may have
    written anything."""
    try:
        share = read_int32(entry, "popShareQueueNum") if "popShareQueueNum" in entry else None
        _check_entry(topic, entry)
        return GroupMode(
            read_text(entry, "mode"),
            share,
            read_text(entry, "rebalance"),
            read_text(entry, "strategyName"),
            _fixed_queues(topic, entry),
        )
    except BadBody:
        return GroupMode()


def _check_entry(topic: str, entry: dict[str, Any]) -> None:
    """Raise BadBody for impossible values in an entry."""
    mode, rebalance = read_text(entry, "mode"), read_text(entry, "rebalance")
    if mode not in ("", PULL, POP):
        raise BadBody(f"mode {mode[:100]} is neither {PULL} nor {POP}")
    if rebalance not in ("", BY_BROKER, BY_CLIENT):
        raise BadBody(f"rebalance {rebalance[:100]} is neither {BY_BROKER} nor {BY_CLIENT}")
    strategy = read_text(entry, "strategyName")
    if strategy and not is_strategy(strategy):
        raise BadBody(f"unknown strategy {strategy[:100]}")
    read_int32(entry, "popShareQueueNum")
    _fixed_queues(topic, entry)


def _fixed_queues(topic: str, entry: dict[str, Any]) -> Shares:
    """Return the queues of the strategy CONFIG in an entry, given as client id to texts
    `broker:queue id`. Raises BadBody."""
    shares: Shares = {}
    for client_id, names in read_table(
        entry, "queues", lambda names: read_list({"": names}, "", as_text)
    ).items():
        shares[client_id] = []
        for name in names:
            broker, _, queue_id = name.rpartition(":")
            wrong = check_lengths(client=client_id, broker=broker)
            if wrong or not broker or not queue_id.isdecimal() or len(queue_id) > 9:
                raise BadBody(wrong or f"{name[:100]} is not broker:queue")
            shares[client_id].append(MessageQueue(topic, broker, int(queue_id)))
    return shares

"""Filters of consumer groups: consumerFilter.json and the compiled filters.

Owns RocketMQ's ConsumerFilterManager: the expression of each group for each topic, the times when
it was registered and last used, and its bits in the bit maps of queue extensions. It must never
read a message.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.tables.bloom import BloomFilter
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine import fastjson
from turbopump.engine.disk.flush import pause_if_long
from turbopump.engine.disk.json_table import Content
from turbopump.net.wire.bodies import (
    BadBody,
    as_int,
    as_object,
    read_int64,
    read_list,
    read_table,
    read_text,
)
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import cut_name, kept_size
from turbopump.net.wire.sql.compiler import compile_filter
from turbopump.net.wire.sql.words import SqlError
from turbopump.net.wire.subscription import EXPRESSION_MAX, SubscriptionData
from turbopump.pyx.filter import Filter

logger = logging.getLogger(__name__)

FILE_NAME: Final = "consumerFilter.json"
"""Name of the table's file in the config folder."""
MAX_SIZE: Final = 24 << 20
"""Maximum estimated bytes of all filters, some 20,000: unused filters make room for new filters."""
LOADED_DEAD_MS: Final = 30_000
"""Loaded filters count as unused since this many ms before the load
(ConsumerFilterManager.decode)."""

CLEANED_MAX: Final = 1_000
"""Maximum filters that a single call of `FilterTable.remove_unused` forgets."""

_ENTRY_SIZE: Final = 900
_PIECE: Final = 64


class TooManyFilters(Exception):
    """The filters in a heartbeat exceed MAX_SIZE, even without all unused filters."""


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """A group's property filter of a topic (RocketMQ: ConsumerFilterData). It is replaced, never
    changed. `kind` is the expression type (SQL92); `born_ms` and `dead_ms` are epoch ms:
    registered, and unused since that time, 0 while in use. `client_version` is the highest
    subVersion. `bits` are the filter's positions in a bit map of `bit_count` bits. `compiled` is
    None until `FilterTable.get`."""

    group: str
    topic: str
    expression: str
    kind: str
    born_ms: int
    client_version: int
    bits: tuple[int, ...]
    bit_count: int
    dead_ms: int = 0
    compiled: Filter | None = None

    @property
    def is_dead(self) -> bool:
        """Whether no connection of its group subscribes with the filter."""
        return self.dead_ms >= self.born_ms

    @property
    def filter(self) -> Filter:
        """The compiled filter; AssertionError unless `FilterTable.get` returned this object."""
        assert self.compiled is not None, "FilterTable.get compiles"
        return self.compiled

    @property
    def subscription(self) -> SubscriptionData:
        """A new subscription of the topic by the filter's expression."""
        return SubscriptionData(self.topic, self.expression, expression_type=self.kind)

    @property
    def size(self) -> int:
        """Estimated bytes of this filter in the table, with the compiled program if there is
        any."""
        program = 0 if self.compiled is None else self.compiled.size
        return kept_size(self.group, self.topic, self.expression) + program + _ENTRY_SIZE

    def row(self) -> bytes:
        """The filter's row `"group":{...}` in `groupFilterData` of the file, in UTF-8."""
        bean = {
            "bloomFilterData": {"bitNum": self.bit_count, "bitPos": list(self.bits)},
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.kind,
            "topic": self.topic,
        }
        lead, name, rest = fastjson.encode_member(self.group, bean, 4).partition(b'"bitPos":')
        bits, end, rest = rest.partition(b"]")
        # RocketMQ writes an int[] on a single line.
        return lead + name + fastjson.strip_layout(bits) + end + rest


class FilterTable:
    """Table of the property filters of consumer groups, by (topic, group), saved in
    consumerFilter.json. Times are epoch ms. Loop thread only."""

    def __init__(
        self, config: BrokerConfig, saver: TableSaver, on_change: Callable[[str], None]
    ) -> None:
        """`on_change` is called with a group's name when `register` has replaced or removed a
        filter of it."""
        self._config = config
        self._saver = saver
        self._bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._dead: dict[tuple[str, str], None] = {}  # (topic, group), the longest dead first
        self._has_changed = False
        self._on_change = on_change
        self.size = 0
        """Estimated bytes of all filters."""

    def load(self, now_ms: int) -> None:
        """Read consumerFilter.json, RocketMQ's or Turbopump's, if it exists; all filters count as
        unused until `register`. If bits were made with other parameters than this broker's, no
        filter is loaded, as in RocketMQ. Raises ConfigError for malformed content, StoreError if
        the file cannot be read."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is None:
            return
        try:
            loaded = list(_read_filters(saved))
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        here = self._bloom.bit_count, self._bloom.hash_count
        if any((one.bit_count, len(one.bits)) != here for one in loaded):
            logger.info("%s is ignored: its bits were made with other parameters", FILE_NAME)
            return
        loaded.sort(key=lambda one: one.dead_ms or now_ms)
        for one in loaded:
            dead_ms = one.dead_ms or max(one.born_ms, now_ms - LOADED_DEAD_MS)
            if self.size + one.size <= MAX_SIZE:
                self._put_filter(replace(one, dead_ms=dead_ms))
        self._has_changed = False

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], now_ms: int
    ) -> Iterator[None]:
        """Apply a group's subscriptions from a heartbeat: register their filters, and mark its
        filters of other topics as unused. An invalid expression removes the topic's filter.

        The version of a filter never goes back, whichever expression replaces it. Returns an
        iterator, which the caller must exhaust: nothing happens before its first step, and it
        yields after each expression that was compiled. A step raises TooManyFilters.
        """
        named = set()
        for one in subscriptions:
            named.add(one.topic)
            if not one.is_tag_type and one.sub_string and self._register(group, one, now_ms):
                yield
        for topic in self._topics_of.get(group, set()) - named:
            self._mark_dead(self._by_topic[topic][group], now_ms)

    def unregister(self, group: str, now_ms: int) -> None:
        """Mark all filters of a group, which has lost its last connection, as unused."""
        for topic in list(self._topics_of.get(group, ())):
            self._mark_dead(self._by_topic[topic][group], now_ms)

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """The group's filter, compiled now if necessary; None without a filter. A filter whose
        expression does not compile is removed, and None returned."""
        found = self._by_topic.get(topic, {}).get(group)
        if found is None or found.compiled is not None:
            return found
        try:
            compiled = replace(found, compiled=compile_filter(found.subscription))
        except SqlError as error:
            logger.warning("%s: %s of %s: %s", FILE_NAME, cut_name(group), cut_name(topic), error)
            self._remove(found)
            return None
        self._put_filter(compiled)
        return compiled

    def bit_map(self, topic: str, properties: bytes) -> bytes:
        """The bit map of a message: the bits of all filters of its topic that match its properties
        (encoded as in the log; RocketMQ: CommitLogDispatcherCalcBitMap). b"" if
        enableCalcFilterBitMap is off or the topic has no filter."""
        groups = self._by_topic.get(topic)
        if not groups or not self._config.enable_calc_filter_bit_map:
            return b""
        bits: list[int] = []
        for group in list(groups):
            found = self.get(topic, group)
            if found is not None and _matches(found.filter, properties):
                bits += found.bits
        return self._bloom.bit_map(bits)

    def remove_unused(self, now_ms: int) -> None:
        """Forget filters that were unused for filterDataCleanTimeSpan, at most CLEANED_MAX, and
        `save`."""
        limit_ms = self._config.filter_data_clean_time_span_ms
        for topic, group in list(islice(self._dead, CLEANED_MAX)):
            found = self._by_topic[topic][group]
            if now_ms - found.dead_ms < limit_ms:
                break
            self._remove(found)
        self.save()

    def save(self) -> None:
        """Have the file written soon if anything has changed since the last call. Its loss only
        costs the dead times: each heartbeat brings the filters in use."""
        if self._has_changed:
            self._has_changed = False
            self._saver.save_changed(FILE_NAME, self._content)

    def _register(self, group: str, one: SubscriptionData, now_ms: int) -> bool:
        """Register the filter of a subscription (`one`); return whether an expression was parsed
        (FilterDataMapByTopic.register)."""
        known = self._by_topic.get(one.topic, {}).get(group)
        same = (one.sub_string, one.expression_type)
        if known is not None and (known.expression, known.kind) == same:
            if known.is_dead or one.sub_version > known.client_version:
                version = max(one.sub_version, known.client_version)
                self._put_filter(replace(known, client_version=version, dead_ms=0))
            return False
        try:
            compiled = compile_filter(one)
        except SqlError as error:
            # Pulls get the answer that the filter does not exist.
            logger.info("no filter for %s of %s: %s", cut_name(group), cut_name(one.topic), error)
            if known is not None:
                self._remove(known)
                self._on_change(group)
            return True
        self._put_with_room(
            ConsumerFilter(
                group,
                one.topic,
                one.sub_string,
                one.expression_type,
                now_ms,
                max(one.sub_version, -1 if known is None else known.client_version),
                self._bloom.bit_positions(f"{group}#{one.topic}"),
                self._bloom.bit_count,
                compiled=compiled,
            )
        )
        self._on_change(group)
        return True

    def _put_with_room(self, new: ConsumerFilter) -> None:
        """Put a new filter, after removing unused filters as needed. Raises TooManyFilters."""
        for topic, group in list(self._dead) if self.size + new.size > MAX_SIZE else ():
            if (topic, group) != (new.topic, new.group):
                self._remove(self._by_topic[topic][group])
            if self.size + new.size <= MAX_SIZE:
                break
        if self.size + new.size > MAX_SIZE:
            raise TooManyFilters(f"the filters of all groups need over {MAX_SIZE} bytes")
        self._put_filter(new)

    def _put_filter(self, one: ConsumerFilter) -> None:
        """Put or replace a filter in all indexes."""
        groups, pair = self._by_topic.setdefault(one.topic, {}), (one.topic, one.group)
        former = groups.get(one.group)
        self.size += one.size - (0 if former is None else former.size)
        groups[one.group] = one
        self._topics_of.setdefault(one.group, set()).add(one.topic)
        if not one.is_dead:
            self._dead.pop(pair, None)
        else:
            self._dead.setdefault(pair)
        self._has_changed = True

    def _mark_dead(self, one: ConsumerFilter, now_ms: int) -> None:
        """Mark a filter as unused since `now_ms`, unless it is already."""
        if not one.is_dead:
            self._put_filter(replace(one, dead_ms=max(now_ms, one.born_ms)))

    def _remove(self, one: ConsumerFilter) -> None:
        """Remove a filter from all indexes."""
        self.size -= one.size
        del self._by_topic[one.topic][one.group]
        self._topics_of[one.group].discard(one.topic)
        for index, name in ((self._by_topic, one.topic), (self._topics_of, one.group)):
            if not index[name]:
                del index[name]
        self._dead.pop((one.topic, one.group), None)
        self._has_changed = True

    def _content(self) -> Content:
        """The whole content of the file."""
        rows = [(topic, list(groups.values())) for topic, groups in sorted(self._by_topic.items())]
        return lambda: _encode_pieces(rows)


def _matches(compiled: Filter, properties: bytes) -> bool:
    """Whether the filter accepts a message with these encoded properties; False if its evaluation
    fails."""
    try:
        return compiled.evaluate(properties) is True
    except ValueError:
        return False


def _encode_pieces(rows: list[tuple[str, list[ConsumerFilter]]]) -> Iterator[bytes]:
    """Yield the text of the file, some filters at a time."""
    lead = b'{\n\t"filterDataByTopic":{'
    for topic, filters in rows:
        yield lead + b"\n\t\t" + fastjson.dumps(topic).encode() + b':{\n\t\t\t"groupFilterData":{'
        between = b""
        for at in range(0, len(filters), _PIECE):
            pause_if_long()
            piece = [b"\n\t\t\t\t" + one.row() for one in filters[at : at + _PIECE]]
            yield between + b",".join(piece)
            between = b","
        yield b"\n\t\t\t},\n\t\t\t" + fastjson.encode_member("topic", topic, 3) + b"\n\t\t}"
        lead = b","
    yield b"\n\t}\n}" if rows else b"{}"


def _read_filters(saved: Any) -> Iterator[ConsumerFilter]:
    """Yield the filters in the content of a file. Raises BadBody."""
    for topic, of_topic in read_table(as_object(saved), "filterDataByTopic", as_object).items():
        for group, one in read_table(of_topic, "groupFilterData", as_object).items():
            bloom = as_object(one.get("bloomFilterData") or {})
            expression = read_text(one, "expression")
            if not expression or len(expression) > EXPRESSION_MAX:
                continue
            yield ConsumerFilter(
                group,
                topic,
                expression,
                read_text(one, "expressionType"),
                read_int64(one, "bornTime"),
                read_int64(one, "clientVersion"),
                tuple(read_list(bloom, "bitPos", lambda value: as_int(value, "bitPos"))),
                read_int64(bloom, "bitNum"),
                read_int64(one, "deadTime"),
            )

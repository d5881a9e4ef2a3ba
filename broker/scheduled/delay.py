"""Delay levels: messages wait in SCHEDULE_TOPIC_XXXX until their time, then get delivered.

Owns the progress of each level (delayOffset.json). It must never deliver before the time in the
queue's tags code. durable_progress.py decides which progress may be published; level_escape.py
sends due messages to other masters while a replica acts.

    replica --acts--> escaping (level_escape.py)
       ^  '--master--> delivering into this log
       '---- role lost, or no longer acting
"""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.scheduled.durable_progress import DurableProgress
from turbopump.broker.scheduled.level_escape import LevelEscape
from turbopump.broker.tables.data_versions import ACTING_STEP, is_older
from turbopump.broker.traffic.role import Role
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, PutStatus, QueueOffset, QueueUnit
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody, as_int, as_object
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
)
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.topics import DataVersion
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

FILE_NAME = "delayOffset.json"
"""Name of the file in the broker's configuration folder."""
MAX_PER_STEP = 128
"""Maximum number of messages of all levels delivered by one step, some 5 ms: sends and pulls are
served after it."""
BYTES_PER_STEP = 4 << 20
"""Maximum number of bytes that one step delivers, plus one message."""
MAX_LEVELS = 1_000
"""Maximum number of levels in an answer; messageDelayLevel has 18, and queue ids of its topic end
at 65,535."""
_INT = re.compile(r"[0-9]{1,9}", re.ASCII)  # a queue id

Levels = dict[int, QueueOffset]
"""Level (from 1) to the queue offset to deliver next in its queue, which is queue `level` - 1 of
SCHEDULE_TOPIC."""


class DelayedMessages:
    """The delay levels of a broker: delivers due messages, level by level (RocketMQ:
    ScheduleMessageService). Loop thread only; times are epoch ms. A progress maps each level (from
    1) to the queue offset to deliver next."""

    def __init__(
        self,
        store: Store,
        role: Role,
        files: ConfigFiles,
        config: BrokerConfig,
        escape: Escape,
        on_delivered: Callable[[str], None],
    ) -> None:
        """`on_delivered` is called with a topic that got a message."""
        self._store = store
        self._role = role
        self._files = files
        self._delays_ms = config.delay_levels_ms
        """Delays in ms of level 1, 2, ..."""
        self._version_step = config.delay_offset_update_version_step
        self._steps = 0
        self._left = 0
        """Bytes that the step may still deliver."""
        self._escape = escape
        self._escaping: LevelEscape | None = None
        """Set while this replica acts for its master, and sends due messages to others."""
        self._is_save_due = False
        self.lost = 0
        """Number of messages that were removed with their files before their time, since the
        start."""
        self._on_delivered = on_delivered
        self.durable: DurableProgress[Levels] = DurableProgress(store, role, {})
        """Progress of all levels."""

    def load(self) -> None:
        """Read delayOffset.json, written by this broker or RocketMQ; a missing level starts at its
        first message. Raises ConfigError."""
        saved = self._files.load(FILE_NAME)
        if saved is None:
            return
        try:
            self.durable.load(*read_progress(saved))
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def copy_progress(self) -> dict[int, QueueOffset]:
        """Return a copy of the present progress; only levels that had messages."""
        return dict(self.durable.current)

    def kept_progress(self) -> dict[tuple[str, int], QueueOffset]:
        """Return (topic, queue id) of each level's queue to the first queue offset that may still
        have to be delivered: deliveries after it can be lost by a crash."""
        safe = self.durable.safe
        return {
            (SCHEDULE_TOPIC, queue_id): safe.get(queue_id + 1, QueueOffset(0))
            for queue_id in self._store.queue_ids(SCHEDULE_TOPIC)
        }

    def safe_progress(self) -> dict[int, QueueOffset]:
        """Return the progress whose deliveries no replica lacks, for replicas and for a master that
        returns; the present progress becomes the next candidate. On a replica it is the progress
        taken over, whose deliveries its log has."""
        if self.durable.versions.following:
            return self.copy_progress()
        self.begin_save()
        self.durable.settle_candidate()
        return dict(self.durable.safe)

    def progress_to_adopt(
        self, progress: dict[int, QueueOffset], version: DataVersion
    ) -> dict[int, QueueOffset]:
        """Return the progress that a replica should adopt if its master's is `progress`; nothing is
        changed. It is `progress`, unless `version` is older than the version here: then each level
        gets the higher offset (I13). A master that is back may have an older version: while this
        replica acted, it sent messages to other masters, and its own master asks for that progress
        later (RIP-32)."""
        if not is_older(version, self.durable.data_version):
            return progress
        current = self.durable.current
        more = {level: at for level, at in progress.items() if at > current.get(level, 0)}
        return current | more

    def on_truncated(self) -> None:
        """Make this replica accept any version of the master's progress: its log was cut, or starts
        again, and deliveries in it may be gone. The progress itself stays until the master's is
        adopted."""
        self.durable.data_version = DataVersion()

    def adopt_newer(self, progress: dict[int, QueueOffset], version: DataVersion) -> None:
        """Make a replica's progress current where it is higher, level by level; the data version is
        raised, never lowered. This log, or other masters, have all its deliveries (RIP-32:
        pre-online)."""
        current = self.durable.current
        newer = {level: at for level, at in progress.items() if at > current.get(level, 0)}
        self.durable.adopt_newer(current | newer, version)

    def step(self, now_ms: int) -> bool:
        """Deliver due messages into this log, at most MAX_PER_STEP; call again at once after True.
        A replica leaves this to its master, or sends them to other masters while it acts."""
        if not self._role.is_master:
            self.durable.adopt_awaited()
            return self._step_escape(now_ms)
        self._stop_escaping()
        budget, self._left = MAX_PER_STEP, BYTES_PER_STEP
        for level in range(1, self._level_count() + 1):
            budget -= self._deliver_level(level, budget, now_ms)
            if budget <= 0 or self._left <= 0:
                return True
        return False

    def _level_count(self) -> int:
        """Return the number of levels of messageDelayLevel, and of former levels with a queue."""
        queue_ids = self._store.queue_ids(SCHEDULE_TOPIC)
        return max(len(self._delays_ms), min(max(queue_ids, default=-1) + 1, MAX_LEVELS))

    def _step_escape(self, now_ms: int) -> bool:
        """Send due messages to other masters while this replica acts; else end that. Returns
        whether to call again at once."""
        if not (self._role.is_acting and self._escape.is_enabled):
            self._stop_escaping()
            return False
        if self._escaping is None:
            self._escaping = LevelEscape(self._store, self._escape, self)
            # Higher than any counter of the dead master, whichever broker compares.
            version = self.durable.data_version
            counter = version.counter + ACTING_STEP
            self.durable.data_version = replace(version, counter=counter, timestamp=now_ms)
        return self._escaping.step(self._level_count(), now_ms)

    def _stop_escaping(self) -> None:
        """Stop sending messages to other masters, if this replica does."""
        if self._escaping is not None:
            self._escaping.stop()
            self._escaping = None

    def begin_save(self) -> None:
        """Let the next `take_unsaved_content` return the present progress once it is safe; called
        once per save interval."""
        self._is_save_due = True
        if not self.durable.versions.following:
            self.durable.make_candidate()

    def take_unsaved_content(self) -> dict[str, Any] | None:
        """Return the content to write to FILE_NAME and regard it as saved; None if nothing new is
        safe to write, or `begin_save` was not called since. After a failed write the caller calls
        `save_failed`."""
        safe = self.durable.unsaved_progress if self._is_save_due else None
        if safe is None:
            return None
        self.durable.saved, self._is_save_due = safe, False
        return self._to_json(safe)

    def save_failed(self) -> None:
        """Make a later `take_unsaved_content` return the progress again: the last content is not on
        disk."""
        self.durable.saved = None

    def save(self) -> None:
        """Write the progress now; blocks, for a clean stop. The caller has flushed and closed the
        store. Raises OSError."""
        kept = self.durable
        kept.settle_last()
        if kept.safe != kept.saved:
            kept.saved = kept.safe
            self._files.save(FILE_NAME, self._to_json(kept.safe))

    def _to_json(self, progress: dict[int, QueueOffset]) -> dict[str, Any]:
        """The content of delayOffset.json for a progress."""
        return {
            "dataVersion": self.durable.data_version.to_json(),
            "offsetTable": RawKeys(sorted(progress.items())),
        }

    def _deliver_level(self, level: int, budget: int, now_ms: int) -> int:
        """Deliver a level's due messages, at most `budget` of them; return how many were
        examined."""
        queue_id = level - 1
        high = self._store.max_queue_offset(SCHEDULE_TOPIC, queue_id)
        known = self.durable.current.get(level)
        if known == high or (known is None and high == 0):
            return 0
        # The file may belong to an earlier store.
        at = QueueOffset(min(self.first_undelivered(level), high))
        if known is not None and known < at:
            self.lost += at - known
        done = 0
        for unit in self._store.units(SCHEDULE_TOPIC, queue_id, at, budget):
            if not (self.is_due(level, unit, now_ms) and self._deliver_unit(unit, now_ms)):
                break
            at = QueueOffset(at + 1)
            done += 1
            self._left -= unit.size
            if self._left <= 0:
                break
        self._set_progress(level, at, done, now_ms)
        return done

    def _set_progress(self, level: int, at: QueueOffset, done: int, now_ms: int) -> None:
        """Set the progress of a level to queue offset `at`, after `done` more deliveries."""
        self.durable.current = self.durable.current | {level: at}
        if self._makes_version(done):
            self.durable.data_version = self.durable.versions.next_version(
                self.durable.data_version, now_ms
            )

    def _makes_version(self, done: int) -> bool:
        """Whether `done` more deliveries make a new version of the progress; they are counted."""
        before = self._steps // self._version_step
        self._steps += done
        return self._steps // self._version_step > before

    # Interface of level_escape.py

    def first_undelivered(self, level: int) -> QueueOffset:
        """Return the first queue offset of a level that is not known to be delivered, or the
        queue's first offset if retention has removed that message."""
        low = self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1)
        return QueueOffset(max(self.durable.current.get(level, 0), low))

    def is_due(self, level: int, unit: QueueUnit, now_ms: int) -> bool:
        """Whether the time of the level's message has come at `now_ms`, or the clock was set back
        to before its store time, also for a message that cannot be read. messageDelayLevel may have
        had a longer delay at its store time."""
        due_ms = unit.tags_code
        if due_ms <= now_ms:
            return True
        if level <= len(self._delays_ms) and due_ms <= now_ms + self._delays_ms[level - 1]:
            return False
        record = self._store.record_of(unit)
        return record is None or now_ms < record.store_timestamp_ms

    def message_of(self, unit: QueueUnit) -> NewMessage | None:
        """Return the waiting message of a unit in the form for its consumers, with a queue id that
        its topic has; None: it can never be delivered, which is counted or logged."""
        log_offset = unit.log_offset
        record = self._store.record_of(unit)
        if record is None:
            if log_offset < self._store.min_log_offset:
                self.lost += 1  # waiting.py reports all losses in one line
            else:
                logger.error("delayed message at %d cannot be read: dropped", log_offset)
            return None
        message = _message_for_consumers(record)
        if message is None:
            logger.warning("delayed message at %d names no topic and queue: dropped", log_offset)
        else:
            message.queue_id = self._store.queue_of(message.topic, message.queue_id)
        return message

    def delivered_elsewhere(self, level: int, at: QueueOffset, now_ms: int) -> None:
        """Set the progress of a level to `at`, because other masters have all its messages before
        `at`."""
        current, version = self.durable.current, self.durable.data_version
        done = at - self.first_undelivered(level)
        self.durable.delivered_elsewhere(current | {level: at})
        if self._makes_version(done):
            self.durable.data_version = version.next_version(now_ms, version.state_version)

    def _deliver_unit(self, unit: QueueUnit, now_ms: int) -> bool:
        """Append the waiting message of a unit to its target queue; return True if it is done,
        False to try again later."""
        message = self.message_of(unit)
        if message is None:
            return True
        log_offset = unit.log_offset
        if isinstance(self._role.admit_append(), PutStatus):
            return False
        appended = self._store.append(message, now_ms)
        if appended.status is PutStatus.PUT_OK:
            self._on_delivered(message.topic)
            return True
        if appended.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            # The store will never take it: its limits were lowered since. Blocking the level would
            # delay all messages after it forever.
            logger.error("delayed message at %d: %s, dropped", log_offset, appended.status.value)
            return True
        return False


def read_progress(value: Any) -> tuple[dict[int, QueueOffset], DataVersion]:
    """Parse delayOffset.json or the answer to 45: (level to queue offset, version). Raises BadBody,
    also for more than MAX_LEVELS levels."""
    members = as_object(value)
    version = DataVersion.from_json(members.get("dataVersion"))
    progress = {
        as_int(level, "level"): QueueOffset(as_int(queue_offset, level))
        for level, queue_offset in as_object(members.get("offsetTable") or {}).items()
    }
    if len(progress) > MAX_LEVELS:
        raise BadBody(f"{len(progress)} delay levels")
    return progress, version


def _message_for_consumers(record: Record) -> NewMessage | None:
    """Return the waiting message in the form for its consumers (RocketMQ: messageTimeUp); None if
    it has no target. DELAY, REAL_TOPIC and REAL_QID stay in its properties, as consumers of
    RocketMQ see them."""
    properties = decode_properties(record.properties)
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic == HALF_TOPIC or not _INT.fullmatch(queue):
        return None
    properties.pop(names.CRC32, None)
    return NewMessage(
        topic=topic,
        queue_id=int(queue),
        body=record.body,
        properties=encode_properties(properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        is_copy=True,
    )

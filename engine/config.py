"""The settings of a store, under RocketMQ's names and with its defaults.

Owns `StoreConfig` and the table from RocketMQ's property keys to its fields. It must never read a
file or the environment. Called by the broker's configuration, the store and the inspecting tools.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

from turbopump.engine.types import FlushMode, StoreError

QUEUE_UNIT_SIZE = 20
BATCH_UNIT_SIZE = 46
INDEX_HEADER_SIZE = 40
LOG_FILE_SIZE = 1 << 30
EPOCH_FILE = "epochFileCheckpoint"
# Below this a file cannot hold the filler that ends it; RocketMQ never writes smaller ones.
MIN_COMMIT_LOG_FILE = 4096

PROPERTY_FIELDS: Mapping[str, str] = {
    "storePathRootDir": "root",
    "storePathCommitLog": "commit_log_folder",
    "storePathEpochFile": "epoch_file",
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "mappedFileSizeConsumeQueueExt": "mapped_file_size_consume_queue_ext",
    "mapperFileSizeBatchConsumeQueue": "mapper_file_size_batch_consume_queue",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
    "messageIndexEnable": "message_index_enable",
    "flushDiskType": "flush_disk_type",
    "flushIntervalCommitLog": "flush_interval_commit_log_ms",
    "flushCommitLogLeastPages": "flush_commit_log_least_pages",
    "flushCommitLogThoroughInterval": "flush_commit_log_thorough_interval_ms",
    "flushIntervalConsumeQueue": "flush_interval_consume_queue_ms",
    "flushConsumeQueueThoroughInterval": "flush_consume_queue_thorough_interval_ms",
    "syncFlushTimeout": "sync_flush_timeout_ms",
    "syncTimeoutMs": "sync_timeout_ms",
    "fileReservedTime": "file_reserved_time_hours",
    "deleteWhen": "delete_when",
    "diskMaxUsedSpaceRatio": "disk_max_used_space_ratio",
    "diskSpaceWarningLevelRatio": "disk_space_warning_level_ratio",
    "diskSpaceCleanForciblyRatio": "disk_space_clean_forcibly_ratio",
    "cleanFileForciblyEnable": "clean_file_forcibly_enable",
    "cleanResourceInterval": "clean_resource_interval_ms",
    "deleteFileBatchMax": "delete_file_batch_max",
    "maxMessageSize": "max_message_size",
    "maxTransferBytesOnMessageInMemory": "max_transfer_bytes_on_message_in_memory",
    "maxTransferCountOnMessageInMemory": "max_transfer_count_on_message_in_memory",
    "maxTransferBytesOnMessageInDisk": "max_transfer_bytes_on_message_in_disk",
    "maxTransferCountOnMessageInDisk": "max_transfer_count_on_message_in_disk",
    "accessMessageInMemoryMaxRatio": "access_message_in_memory_max_ratio",
    "maxMsgsNumBatch": "max_msgs_num_batch",
    "enabledAppendPropCRC": "enabled_append_prop_crc",
    "enableConsumeQueueExt": "enable_consume_queue_ext",
}
"""RocketMQ key -> field of StoreConfig; hours, percents and milliseconds keep RocketMQ's unit.
syncTimeoutMs is ours."""

LIVE_KEYS: Final = frozenset(
    {
        "cleanFileForciblyEnable",
        "cleanResourceInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushConsumeQueueThoroughInterval",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "maxMsgsNumBatch",
        "syncFlushTimeout",
        "syncTimeoutMs",
    }
)
"""Keys that may change while a store is open: each is read when it is needed."""

_INT32_MAX = 2**31 - 1  # RocketMQ reads every number as int, and maps no larger file
_ANY: Final = (0, _INT32_MAX)
_COUNT: Final = (1, _INT32_MAX)
_PERCENT: Final = (0, 100)
_RANGES: Mapping[str, tuple[int, int]] = {
    "mapped_file_size_commit_log": (MIN_COMMIT_LOG_FILE, _INT32_MAX),
    "mapped_file_size_consume_queue": (1, _INT32_MAX // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE),
    "mapped_file_size_consume_queue_ext": _COUNT,
    "mapper_file_size_batch_consume_queue": (1, _INT32_MAX // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE),
    "max_hash_slot_num": _COUNT,
    "max_index_num": (2, _INT32_MAX),  # entry 0 of an index file is not used
    "sync_flush_timeout_ms": _COUNT,
    "sync_timeout_ms": _COUNT,
    "disk_max_used_space_ratio": _PERCENT,
    "disk_space_warning_level_ratio": _PERCENT,
    "disk_space_clean_forcibly_ratio": _PERCENT,
    "delete_file_batch_max": _COUNT,
    "max_message_size": _COUNT,
    "max_transfer_bytes_on_message_in_memory": _COUNT,
    "max_transfer_count_on_message_in_memory": _COUNT,
    "max_transfer_bytes_on_message_in_disk": _COUNT,
    "max_transfer_count_on_message_in_disk": _COUNT,
    "access_message_in_memory_max_ratio": _PERCENT,
    "max_msgs_num_batch": _COUNT,
}
"""What a number may be, both ends included; the others are waits and thresholds, 0 or more."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """All that shapes a store (RocketMQ: store/config/MessageStoreConfig); `follow` changes it.

    Raises StoreError, naming the key, where a value cannot work at all.
    """

    root: str
    commit_log_folder: str = ""
    epoch_file: str = ""
    mapped_file_size_commit_log: int = LOG_FILE_SIZE
    mapped_file_size_consume_queue: int = 300_000 * QUEUE_UNIT_SIZE
    mapped_file_size_consume_queue_ext: int = 48 << 20
    mapper_file_size_batch_consume_queue: int = 300_000 * BATCH_UNIT_SIZE
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    flush_disk_type: FlushMode = FlushMode.ASYNC_FLUSH
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    flush_interval_consume_queue_ms: int = 1000
    flush_consume_queue_thorough_interval_ms: int = 60_000
    sync_flush_timeout_ms: int = 5000
    sync_timeout_ms: int = 5000
    file_reserved_time_hours: int = 72
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    disk_space_warning_level_ratio: int = 90
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True
    clean_resource_interval_ms: int = 10_000
    delete_file_batch_max: int = 10
    max_message_size: int = 4 << 20
    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_msgs_num_batch: int = 64
    enabled_append_prop_crc: bool = False
    enable_consume_queue_ext: bool = False

    def __post_init__(self) -> None:
        for key, name in PROPERTY_FIELDS.items():
            value = getattr(self, name)
            low, high = _RANGES.get(name, _ANY)
            # What is true or false is an int for Python, within any of these.
            if isinstance(value, int) and not low <= value <= high:
                raise StoreError(f"{key} must be a whole number from {low} to {high}")
        if self.index_file_size > _INT32_MAX:
            raise StoreError(
                f"maxIndexNum (20 bytes each) and maxHashSlotNum (4 bytes each) must make an index"
                f" file of at most {_INT32_MAX} bytes, not {self.index_file_size}"
            )
        if "," in self.commit_log_folder:
            raise StoreError("storePathCommitLog must be one folder, several are not supported yet")
        if not self.root:
            raise StoreError("storePathRootDir must not be empty")
        self.delete_hours()

    @property
    def log_folder(self) -> str:
        """Where the commit log's files lie."""
        return self.commit_log_folder or f"{self.root}/commitlog"

    @property
    def epoch_path(self) -> str:
        """The file of the epoch list."""
        return self.epoch_file or f"{self.root}/{EPOCH_FILE}"

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume queue file: the configured size rounded up to whole units."""
        return _round_up(self.mapped_file_size_consume_queue, QUEUE_UNIT_SIZE)

    @property
    def batch_queue_file_size(self) -> int:
        """Bytes of a batch consume queue file: the configured size rounded up to whole units."""
        return _round_up(self.mapper_file_size_batch_consume_queue, BATCH_UNIT_SIZE)

    @property
    def index_file_size(self) -> int:
        """Bytes of an index file: header, hash slots, entries."""
        return INDEX_HEADER_SIZE + 4 * self.max_hash_slot_num + 20 * self.max_index_num

    def follow(self, other: "StoreConfig") -> None:
        """Have the values of another one, as far as they may change while the store is open."""
        for key in LIVE_KEYS:
            name = PROPERTY_FIELDS[key]
            object.__setattr__(self, name, getattr(other, name))

    def delete_hours(self) -> frozenset[int]:
        """Hours of the day at which expired files go; raises StoreError for text that is none."""
        return _hours(self.delete_when)

    @classmethod
    def from_properties(cls, root: str, properties: Mapping[str, str]) -> "StoreConfig":
        """A configuration from RocketMQ's property texts; keys of other parts are passed over.

        Raises StoreError naming the key whose value is not of its type.
        """
        kinds = {item.name: item.type for item in fields(cls)}
        values: dict[str, object] = {}
        for key, text in properties.items():
            name = PROPERTY_FIELDS.get(key)
            if name is not None:
                values[name] = _parse(key, text.strip(), kinds[name])
        return cls(**{"root": root, **values})  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def _hours(delete_when: str) -> frozenset[int]:
    hours = set()
    for part in delete_when.split(";"):
        text = part.strip()
        if not text.isdigit() or int(text) > 23:
            raise StoreError(f'deleteWhen must be hours like "04" or "04;16", not {text!r}')
        hours.add(int(text))
    return frozenset(hours)


def _parse(key: str, text: str, kind: object) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise StoreError(f"{key} must be true or false, not {text!r}")
        return text.lower() == "true"
    if kind is FlushMode:
        if text not in FlushMode.__members__:
            raise StoreError(f"{key} must be ASYNC_FLUSH or SYNC_FLUSH, not {text!r}")
        return FlushMode[text]
    if kind is int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise StoreError(f"{key} must be a whole number, not {text[:40]!r}")
        return int(text)
    return text


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit

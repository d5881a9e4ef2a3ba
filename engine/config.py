"""The settings of a store, under RocketMQ's names and with its defaults.

Owns `StoreConfig`, which declares the keys of a store. It must never read a file or the
environment.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from turbopump.engine.keys import (
    ANY,
    BOOLEAN,
    COUNT,
    INT32_MAX,
    OURS,
    PERCENT,
    TEXT,
    Kind,
    enum_kind,
    integer_kind,
    key,
    keys_of,
)
from turbopump.engine.types import FlushMode, StoreError

QUEUE_UNIT_SIZE = 20
"""Bytes of a unit of a consume queue."""
BATCH_UNIT_SIZE = 46
"""Bytes of a unit of a batch consume queue."""
INDEX_HEADER_SIZE = 40
"""Bytes of an index file before its hash slots."""
LOG_FILE_SIZE = 1 << 30
"""Default bytes of a log file."""
EPOCH_FILE = "epochFileCheckpoint"
"""Default name of the epoch list's file in the store's folder."""
LOG_FOLDER = "commitlog"
"""Default name of the commit log's folder in the store's folder."""
MIN_COMMIT_LOG_FILE = 4096
"""Least bytes of a log file: a smaller file cannot hold the filler that ends it; RocketMQ never
writes smaller ones."""


def _size_of_units(size: int) -> Kind[int]:
    """The kind of file sizes in bytes from 1 to the largest multiple of `size` that an int32 holds;
    the file is rounded up to whole units of `size` bytes."""
    return integer_kind(1, INT32_MAX // size * size)


@lru_cache(maxsize=1)
def _parse_hours(delete_when: str) -> frozenset[int]:
    """Parse a deleteWhen such as "04" or "04;16" into hours from 0 to 23. Raises ValueError."""
    parts = [part.strip() for part in delete_when.split(";")]
    if not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ValueError(_HOURS)
    return frozenset(map(int, parts))


def _checked_delete_when(value: str) -> str:
    """The value itself. Raises ValueError unless it is a list of hours."""
    _parse_hours(value)
    return value


def _checked_folder(value: str) -> str:
    """The value itself. Raises ValueError if it is empty."""
    if not value:
        raise ValueError("a folder, not empty")
    return value


def _checked_single_folder(value: str) -> str:
    """The value itself. Raises ValueError if it has a comma, which separates
    folders in RocketMQ."""
    if "," in value:
        raise ValueError("one folder, several are not supported yet")
    return value


_HOURS: Final = 'hours like "04" or "04;16"'
FOLDER: Final = Kind("a folder", _checked_folder)
"""A text that is not empty; the folder need not exist."""
ONE_FOLDER: Final = Kind("one folder", _checked_single_folder)
"""A text without a comma; it may be empty."""
HOURS: Final = Kind(_HOURS, _checked_delete_when)
"""A text of hours of the day, 0 to 23, separated by semicolons; the value is the text."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The settings of a store (RocketMQ: store/config/MessageStoreConfig), each with its key's
    declaration; only `adopt_live_values` changes them. The constructor raises StoreError, naming
    the key, if a value can never work.
    """

    root: str = key(
        "storePathRootDir",
        FOLDER,
        "turbopump-data/store",
        "The folder of the store.",
        rocketmq="the folder store in the home of the broker's user",
    )
    commit_log_folder: str = key(
        "storePathCommitLog",
        ONE_FOLDER,
        "",
        "The folder of the commit log; empty: commitlog in the store's.",
        in_force="log_folder",
    )
    epoch_file: str = key(
        "storePathEpochFile",
        TEXT,
        "",
        "The file of the epoch list; empty: epochFileCheckpoint in the store's folder.",
        in_force="epoch_path",
    )
    mapped_file_size_commit_log: int = key(
        "mappedFileSizeCommitLog",
        integer_kind(MIN_COMMIT_LOG_FILE, INT32_MAX),
        LOG_FILE_SIZE,
        "Bytes of a file of the commit log.",
    )
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue",
        _size_of_units(QUEUE_UNIT_SIZE),
        300_000 * QUEUE_UNIT_SIZE,
        "Bytes of a file of a consume queue, rounded up to whole units of 20.",
    )
    mapped_file_size_consume_queue_ext: int = key(
        "mappedFileSizeConsumeQueueExt",
        COUNT,
        48 << 20,
        "Bytes of a file of enableConsumeQueueExt.",
    )
    mapper_file_size_batch_consume_queue: int = key(
        "mapperFileSizeBatchConsumeQueue",
        _size_of_units(BATCH_UNIT_SIZE),
        300_000 * BATCH_UNIT_SIZE,
        "Bytes of a file of a batch consume queue, rounded up to whole units of 46.",
    )
    max_hash_slot_num: int = key(
        "maxHashSlotNum", COUNT, 5_000_000, "Hash slots of an index file, 4 bytes each."
    )
    # Entry 0 of an index file is not used.
    max_index_num: int = key(
        "maxIndexNum",
        integer_kind(2, INT32_MAX),
        20_000_000,
        "Entries of an index file, 20 bytes each.",
    )
    message_index_enable: bool = key(
        "messageIndexEnable", BOOLEAN, True, "Write the index by which messages are found by key."
    )
    flush_disk_type: FlushMode = key(
        "flushDiskType",
        enum_kind(FlushMode),
        FlushMode.ASYNC_FLUSH,
        "Whether a send is answered once it is in memory, or once it is on the disk.",
    )
    flush_interval_commit_log_ms: int = key(
        "flushIntervalCommitLog",
        ANY,
        500,
        "Milliseconds between two syncs of the commit log under ASYNC_FLUSH.",
        live=True,
    )
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages",
        ANY,
        4,
        "Number of unsynced 4 KiB pages below which such a sync is delayed.",
        live=True,
    )
    flush_commit_log_thorough_interval_ms: int = key(
        "flushCommitLogThoroughInterval",
        ANY,
        10_000,
        "Milliseconds after which such a sync is not delayed any longer.",
        live=True,
    )
    flush_interval_consume_queue_ms: int = key(
        "flushIntervalConsumeQueue",
        ANY,
        1000,
        "Milliseconds between two checks whether the checkpoint or the consume queues are due.",
        live=True,
    )
    flush_consume_queue_thorough_interval_ms: int = key(
        "flushConsumeQueueThoroughInterval",
        ANY,
        60_000,
        "Milliseconds between two syncs of all consume queues; then the checkpoint moves on.",
        live=True,
    )
    sync_flush_timeout_ms: int = key(
        "syncFlushTimeout",
        COUNT,
        5000,
        "Milliseconds that a send waits for the disk under SYNC_FLUSH.",
        live=True,
    )
    sync_timeout_ms: int = key(
        "syncTimeoutMs",
        COUNT,
        5000,
        "Milliseconds after which a sync, or the creation of a log file, counts as failed; a"
        " large sync has more.",
        live=True,
        rocketmq=OURS,
    )
    file_reserved_time_hours: int = key(
        "fileReservedTime",
        ANY,
        72,
        "Hours that a file of the commit log is kept.",
        live=True,
    )
    delete_when: str = key(
        "deleteWhen",
        HOURS,
        "04",
        "Hours of the day at which expired files are removed.",
        live=True,
    )
    disk_max_used_space_ratio: int = key(
        "diskMaxUsedSpaceRatio",
        PERCENT,
        75,
        "Percent of the disk in use above which expired files are removed at any hour.",
        live=True,
    )
    disk_space_warning_level_ratio: int = key(
        "diskSpaceWarningLevelRatio",
        PERCENT,
        90,
        "Percent of the disk in use above which sends are refused; limited to 35 to 90.",
        live=True,
    )
    disk_space_clean_forcibly_ratio: int = key(
        "diskSpaceCleanForciblyRatio",
        PERCENT,
        85,
        "Percent of the disk in use above which files are removed before they expire; limited to"
        " 30 to 85.",
        live=True,
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable",
        BOOLEAN,
        True,
        "Whether files may be removed before they expire.",
        live=True,
    )
    keep_waiting_messages: bool = key(
        "keepWaitingMessages",
        BOOLEAN,
        True,
        "Whether files of the commit log outlive fileReservedTime while timers, delayed messages,"
        " open half messages or pop check points wait in them; a disk above"
        " diskSpaceCleanForciblyRatio removes them nevertheless.",
        live=True,
        rocketmq=OURS,
    )
    keep_waiting_hours_max: int = key(
        "keepWaitingHoursMax",
        ANY,
        336,
        "Maximum hours that such a file is kept after fileReservedTime.",
        live=True,
        rocketmq=OURS,
    )
    keep_waiting_mbytes_max: int = key(
        "keepWaitingMbytesMax",
        ANY,
        64 << 10,
        "Maximum mebibytes of such files, of which the newest are kept; at most 1,000 files.",
        live=True,
        rocketmq=OURS,
    )
    clean_resource_interval_ms: int = key(
        "cleanResourceInterval",
        ANY,
        10_000,
        "Milliseconds between two checks of disk and clock for files to remove.",
        live=True,
    )
    delete_file_batch_max: int = key(
        "deleteFileBatchMax",
        COUNT,
        10,
        "Maximum number of commit log files that one check removes.",
        live=True,
    )
    max_message_size: int = key(
        "maxMessageSize", COUNT, 4 << 20, "Bytes of a message's body; larger ones are refused."
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        "maxTransferBytesOnMessageInMemory",
        COUNT,
        256 << 10,
        "Maximum bytes of a pull's response while the messages are likely in memory.",
    )
    max_transfer_count_on_message_in_memory: int = key(
        "maxTransferCountOnMessageInMemory", COUNT, 32, "The same limit in messages."
    )
    max_transfer_bytes_on_message_in_disk: int = key(
        "maxTransferBytesOnMessageInDisk",
        COUNT,
        64 << 10,
        "Maximum bytes of a pull's response while the messages are likely only on the disk.",
    )
    max_transfer_count_on_message_in_disk: int = key(
        "maxTransferCountOnMessageInDisk", COUNT, 8, "The same limit in messages."
    )
    access_message_in_memory_max_ratio: int = key(
        "accessMessageInMemoryMaxRatio",
        PERCENT,
        40,
        "Size of the log's end that counts as in memory, in percent of the machine's memory.",
    )
    max_msgs_num_batch: int = key(
        "maxMsgsNumBatch",
        COUNT,
        64,
        "Maximum number of messages in the response to a query by key.",
        live=True,
    )
    enabled_append_prop_crc: bool = key(
        "enabledAppendPropCRC",
        BOOLEAN,
        False,
        "Add a checksum of the whole record to its properties.",
    )
    enable_consume_queue_ext: bool = key(
        "enableConsumeQueueExt",
        BOOLEAN,
        False,
        "Keep files beside consume queues for data that does not fit into a unit.",
    )
    mapped_file_size_timer_log: int = key(
        "mappedFileSizeTimerLog",
        integer_kind(68, INT32_MAX),  # a unit and a filler
        100 << 20,
        "Bytes of a file of the timers' log; existing files keep their size.",
    )
    timer_precision_ms: int = key(
        "timerPrecisionMs",
        COUNT,
        1_000,
        "Milliseconds per slot of the timer wheel. Timers are delivered to the millisecond.",
    )
    timer_roll_window_slot: int = key(
        "timerRollWindowSlot",
        ANY,
        2 * 24 * 3600,
        "Number of slots ahead beyond which a timer waits in parts; 2 to 604740, else 604740.",
    )

    def __post_init__(self) -> None:
        for attribute, one in keys_of(StoreConfig).items():
            try:
                one.kind.parse(one.kind.to_text(getattr(self, attribute)))
            except ValueError as error:
                raise StoreError(f"{one.name} must be {error}") from None
        if self.index_file_size > INT32_MAX:
            raise StoreError(
                f"maxIndexNum (20 bytes each) and maxHashSlotNum (4 bytes each) must make an index"
                f" file of at most {INT32_MAX} bytes, not {self.index_file_size}"
            )

    @property
    def log_folder(self) -> str:
        """Folder of the commit log's files in force: storePathCommitLog or its default."""
        return self.commit_log_folder or f"{self.root}/{LOG_FOLDER}"

    @property
    def epoch_path(self) -> str:
        """Path of the epoch list's file in force: storePathEpochFile or its default."""
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
        """Bytes of an index file: header, hash slots and entries together."""
        return INDEX_HEADER_SIZE + 4 * self.max_hash_slot_num + 20 * self.max_index_num

    def adopt_live_values(self, other: "StoreConfig") -> None:
        """Set the keys that may change while the store is open (`Key.live`) to the values of
        another configuration; other keys stay. The parts of an open store use the new values from
        their next tick or request."""
        for attribute, one in keys_of(StoreConfig).items():
            if one.live:
                object.__setattr__(self, attribute, getattr(other, attribute))

    def delete_hours(self) -> frozenset[int]:
        """Hours of the day, 0 to 23 in local time, at which expired files are removed."""
        return _parse_hours(self.delete_when)


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit

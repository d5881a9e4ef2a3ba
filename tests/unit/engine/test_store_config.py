"""Settings: RocketMQ's defaults, its property keys, and what cannot work."""

import pytest

from turbopump.engine.config import PROPERTY_FIELDS, StoreConfig
from turbopump.engine.types import FlushMode, StoreError


def test_defaults_are_rocketmqs() -> None:
    config = StoreConfig("/data")
    assert config.log_folder == "/data/commitlog"
    assert config.mapped_file_size_commit_log == 1_073_741_824
    assert config.queue_file_size == 6_000_000
    assert config.batch_queue_file_size == 13_800_000
    assert config.mapped_file_size_consume_queue_ext == 50_331_648
    assert config.index_file_size == 420_000_040
    assert config.delete_hours() == {4}


def test_sizes_are_rounded_up_to_whole_units() -> None:
    config = StoreConfig(
        "/data", mapped_file_size_consume_queue=1001, mapper_file_size_batch_consume_queue=47
    )
    assert config.queue_file_size == 1020
    assert config.batch_queue_file_size == 92


def test_properties_of_each_type() -> None:
    config = StoreConfig.from_properties(
        "/data",
        {
            "storePathCommitLog": "/log",
            "mappedFileSizeCommitLog": " 2097152 ",
            "flushDiskType": "SYNC_FLUSH",
            "messageIndexEnable": "FALSE",
            "deleteWhen": "04;16",
            "listenPort": "10911",
        },
    )
    assert config.log_folder == "/log"
    assert config.mapped_file_size_commit_log == 2_097_152
    assert config.flush_disk_type is FlushMode.SYNC_FLUSH
    assert config.message_index_enable is False
    assert config.delete_hours() == {4, 16}
    assert set(PROPERTY_FIELDS.values()) == set(StoreConfig.__slots__)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "1G"),
        ("mappedFileSizeCommitLog", "4095"),
        ("maxMessageSize", "1_000"),
        ("mappedFileSizeConsumeQueue", "0"),
        ("maxMessageSize", "-1"),
        ("maxIndexNum", "1"),
        ("flushDiskType", "SOMETIMES"),
        ("messageIndexEnable", "yes"),
        ("deleteWhen", "24"),
        ("deleteWhen", "at night"),
        ("storePathRootDir", ""),
        ("mappedFileSizeCommitLog", "99999999999999"),
        ("mappedFileSizeConsumeQueue", "2147483641"),
        ("maxIndexNum", "107374183"),
        ("maxHashSlotNum", "500000000"),
        ("fileReservedTime", "-1"),
        ("fileReservedTime", "2147483648"),
        ("flushIntervalCommitLog", "-5"),
        ("diskMaxUsedSpaceRatio", "101"),
        ("deleteFileBatchMax", "0"),
        ("maxTransferCountOnMessageInMemory", "0"),
        ("flushCommitLogLeastPages", "9" * 5000),
    ],
)
def test_a_value_that_cannot_work_is_named(key: str, value: str) -> None:
    with pytest.raises(StoreError, match=key):
        StoreConfig.from_properties("/data", {key: value})


def test_every_number_has_a_range() -> None:
    for key, name in PROPERTY_FIELDS.items():
        if type(getattr(StoreConfig("/data"), name)) is int:
            for text in ("-1", str(2**31)):
                with pytest.raises(StoreError, match=f"{key} must be a whole number from"):
                    StoreConfig.from_properties("/data", {key: text})

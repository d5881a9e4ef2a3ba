"""Settings: RocketMQ's defaults, its property keys, and invalid values."""

import pytest

from turbopump.engine.config import StoreConfig
from turbopump.engine.keys import keys_of
from turbopump.engine.types import FlushMode, StoreError


def read(properties: dict[str, str]) -> StoreConfig:
    """Parse properties as the configuration of a node does (`net/config/node_config.py`)."""
    values = {}
    for attribute, key in keys_of(StoreConfig).items():
        if key.name in properties:
            try:
                values[attribute] = key.kind.parse(properties[key.name].strip())
            except ValueError as error:
                raise StoreError(f"{key.name}: expected {error}") from None
    return StoreConfig(**values)


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
    config = read(
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
    assert keys_of(StoreConfig).keys() == set(StoreConfig.__slots__)


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
        read({key: value})


def test_every_number_has_a_range() -> None:
    for attribute, key in keys_of(StoreConfig).items():
        if type(key.default) is int:
            for number in (-1, 2**31):
                with pytest.raises(StoreError, match=f"{key.name} must be a whole number from"):
                    StoreConfig("/data", **{attribute: number})

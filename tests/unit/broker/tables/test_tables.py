"""Topics, groups and offsets: rules, bounds, and files that RocketMQ reads and writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import offset_json

from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.tables import groups as groups_module
from turbopump.broker.tables import offset_lines, offsets
from turbopump.broker.tables import topics as topics_module
from turbopump.broker.tables.groups import GroupTable
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine import fastjson
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.wire import names
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import validate_group_name, validate_topic_name
from turbopump.net.wire.topics import TopicConfig

JAVA_OFFSETS = b"""{
	"dataVersion":{
		"counter":3,
		"stateVersion":0,
		"timestamp":1795267173310
	},
	"groupTopicMap":{
		"G_lite":[
			"Basic"
		]
	},
	"offsetTable":{
		"Basic@G_lite":{
			0:4,
			1:10
		},
		"%RETRY%G@G":{
			0:3
		}
	},
	"pullOffsetTable":{
		"Basic@G_lite":{
			0:5
		}
	}
}"""


@pytest.fixture
def files(tmp_path: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), str(tmp_path))


def topic_table(files: ConfigFiles, properties: str = "") -> TopicTable:
    table = TopicTable(load_config(properties)[0], TableSaver(files, InlineDisk()))
    table.load()
    table.add_boot_topics(1)
    return table


def group_table(files: ConfigFiles, config: BrokerConfig | None = None) -> GroupTable:
    table = GroupTable(
        config or BrokerConfig(), TableSaver(files, InlineDisk()), lambda names: None
    )
    table.load(1)
    return table


def test_topics_of_the_start(files: ConfigFiles) -> None:
    table = topic_table(files, "brokerClusterName=C\nbrokerName=b\n")
    made = {name: (one.write_queue_nums, one.perm) for name, one in table.all_topics().items()}
    assert made == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "C_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    }
    assert all(table.is_system(name) for name in made)
    assert not table.is_system("T")
    assert set(table.system_topics()) >= set(made)


def test_topics_of_the_start_follow_the_configuration(files: ConfigFiles) -> None:
    table = topic_table(
        files,
        "autoCreateTopicEnable=false\nclusterTopicEnable=false\ntraceTopicEnable=true\n"
        "messageDelayLevel=1s 2s\n",
    )
    assert table.get("TBW102") is None
    cluster, schedule = table.get("DefaultCluster"), table.get("SCHEDULE_TOPIC_XXXX")
    assert cluster is not None
    assert cluster.perm == 1
    assert schedule is not None
    assert schedule.write_queue_nums == 2
    assert table.get("RMQ_SYS_TRACE_TOPIC") is not None


def test_loading_writes_nothing(files: ConfigFiles, tmp_path: Path) -> None:
    TopicTable(BrokerConfig(), TableSaver(files, InlineDisk())).load()
    assert list(tmp_path.iterdir()) == []


def test_topics_survive_a_restart(files: ConfigFiles) -> None:
    table = topic_table(files)
    version = table.data_version
    table.put(TopicConfig("T", 3, 4, 4, order=True, attributes={"a": "b"}), 1_000)
    assert table.data_version.counter == version.counter + 1
    assert table.data_version.timestamp == 1_000
    again = topic_table(files)
    assert again.all_topics() == table.all_topics()
    assert again.data_version == table.data_version


def test_changes_survive_a_kill_and_a_stop(files: ConfigFiles, tmp_path: Path) -> None:
    """A kill leaves changes beside topics.json, a stop has put them into it."""
    saver = TableSaver(files, InlineDisk())
    table = TopicTable(BrokerConfig(), saver)
    table.load()
    table.add_boot_topics(1)
    before = (tmp_path / "topics.json").read_bytes()
    table.put(TopicConfig("T", 3, 4, 4, attributes={"a": "b", "c": "d"}), 2)
    table.put_all([TopicConfig("T", 3, 4, 4, attributes={"a": "x"}), TopicConfig("U")], 3)
    table.put(TopicConfig("V"), 4)
    assert table.delete("V", 5)
    table.bump_version(6)
    assert (tmp_path / "topics.json").read_bytes() == before
    killed = topic_table(ConfigFiles(RealFiles(), str(tmp_path)))
    saver.begin_last_writes()
    (tmp_path / "topics.json.bak").unlink()
    assert not (tmp_path / "topics.json.changes").exists()
    stopped = topic_table(ConfigFiles(RealFiles(), str(tmp_path)))
    for again in (killed, stopped):
        assert again.all_topics() == table.all_topics()
        assert again.data_version == table.data_version


def test_a_new_topic_costs_the_same_beside_thousands(
    files: ConfigFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are encoded and written, however many there are."""
    written = encoded = 0
    write, dumps = RealFiles.write, fastjson.dumps

    def counting_write(self: RealFiles, path: str, data: bytes, position: int = -1) -> None:
        nonlocal written
        written += len(data.rstrip(b"\0"))
        write(self, path, data, position)

    def counting_dumps(value: object, **more: Any) -> str:
        nonlocal encoded
        text = dumps(value, **more)
        encoded += len(text)
        return text

    table = topic_table(files)
    table.put_all([TopicConfig(f"T{number}") for number in range(5_000)], 2)
    monkeypatch.setattr(RealFiles, "write", counting_write)
    monkeypatch.setattr(fastjson, "dumps", counting_dumps)
    for number in range(100):
        table.put(TopicConfig(f"New{number}"), 3)
    assert written < 100 * 600
    assert encoded < 100 * 600
    groups = group_table(files)
    groups.put_all([SubscriptionGroupConfig(f"G{number}") for number in range(5_000)], 2)
    written = encoded = 0
    for number in range(100):
        assert groups.find_or_create(f"New{number}", 3) is not None
        groups.set_forbidden(f"New{number}", "T", 4, 3)
    assert written < 100 * 1_500
    assert encoded < 100 * 1_500


def test_equal_topic_is_no_change(files: ConfigFiles) -> None:
    table = topic_table(files)
    notified: list[list[str]] = []
    table.on_change = notified.append
    table.put(TopicConfig("T"), 2)
    version = table.data_version
    table.put(TopicConfig("T"), 3)
    assert table.data_version == version
    table.put_all([TopicConfig("T", perm=4), TopicConfig("U")], 4)
    assert table.data_version.counter == version.counter + 1
    assert table.delete("T", 5)
    assert not table.delete("T", 6)
    assert notified == [["T"], ["T", "U"], ["T"]]


def test_automatic_creation_follows_the_default_topic(files: ConfigFiles) -> None:
    table = topic_table(files)
    made = table.create_from_default("T", "TBW102", 4, 1, 2)
    assert made == TopicConfig("T", 4, 4, 6, topic_sys_flag=1)
    wide = table.create_from_default("W", "TBW102", 100, 0, 2)
    assert wide is not None
    assert wide.write_queue_nums == 8
    assert table.create_from_default("T", "Missing", 4, 0, 2) == made
    assert table.create_from_default("U", "T", 4, 0, 2) is None
    assert table.create_from_default("U", "Missing", 4, 0, 2) is None


def test_default_topic_of_an_older_start_does_not_create(files: ConfigFiles) -> None:
    topic_table(files)
    table = topic_table(files, "autoCreateTopicEnable=false\n")
    assert table.get("TBW102") is not None
    assert table.create_from_default("T", "TBW102", 4, 0, 2) is None


def test_tables_are_bounded(files: ConfigFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MAX_TOPICS", 14)
    table = topic_table(files)
    assert table.create_internal("%RETRY%A", 1, 6, 2) is not None
    assert table.create_internal("%RETRY%B", 1, 6, 2) is None
    assert table.create_from_default("T", "TBW102", 4, 0, 2) is None
    monkeypatch.setattr(groups_module, "MAX_GROUPS", 9)
    groups = group_table(files)
    assert groups.find_or_create("A", 2) is not None
    assert groups.find_or_create("B", 2) is None
    monkeypatch.setattr(offset_lines, "MAX_PAIRS", 1)
    offsets = OffsetTable(files)
    for topic in ("T", "U"):
        offsets.commit("G", topic, 0, QueueOffset(1), 2)
    assert offsets.query("G", "T", 0) == 1
    assert offsets.query("G", "U", 0) == -1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("T", None),
        ("%RETRY%a|b-C_1", None),
        ("T" * 127, None),
        ("%DLQ%" + "g" * 250, None),
        (" ", "is blank"),
        ("a.b", "illegal characters"),
        ("主题", "illegal characters"),
        ("T\n", "illegal characters"),
        ("T" * 128, "max length: 127"),
        ("%DLQ%" + "g" * 251, "max length: 255"),
    ],
)
def test_topic_names(name: str, problem: str | None) -> None:
    found = validate_topic_name(name)
    assert (found is None) == (problem is None)
    assert (problem or "") in (found or "")


def test_group_names() -> None:
    assert validate_group_name("g" * 120) is None
    assert "max length: 120" in (validate_group_name("g" * 121) or "")
    assert "illegal" in (validate_group_name("g g") or "")
    assert "blank" in (validate_group_name("") or "")


def test_groups_are_made_on_first_use(files: ConfigFiles) -> None:
    table = group_table(files)
    assert len(table.all_groups()) == 8
    assert table.get("G") is None
    made = table.find_or_create("G", 5)
    assert made == SubscriptionGroupConfig("G")
    assert table.get("G") is made
    assert table.find_or_create("bad name", 5) is None
    again = group_table(files)
    assert again.all_groups() == table.all_groups()
    assert again.data_version == table.data_version


def test_groups_are_not_made_where_that_is_off(files: ConfigFiles) -> None:
    table = group_table(files, load_config("autoCreateSubscriptionGroup=false\n")[0])
    assert table.find_or_create("G", 2) is None
    assert table.find_or_create("CID_RMQ_SYS_X", 2) is not None


def test_bans_and_deletion(files: ConfigFiles) -> None:
    table = group_table(files)
    table.put(SubscriptionGroupConfig("G"), 2)
    table.set_forbidden("G", "T", 4, 3)
    table.set_forbidden("G", "U", 4, 3)
    table.set_forbidden("G", "U", 0, 3)
    again = group_table(files)
    assert (again.forbidden_mask("G", "T"), again.forbidden_mask("G", "U")) == (4, 0)
    assert table.delete("G", 4)
    assert not table.delete("G", 4)
    assert table.forbidden_mask("G", "T") == 0


def test_offsets_of_a_java_broker(files: ConfigFiles, tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(JAVA_OFFSETS)
    table = OffsetTable(files)
    table.load()
    assert table.queues_of("G_lite", "Basic") == {0: 4, 1: 10}
    assert table.query("G", "%RETRY%G", 0) == 3
    assert table.query_pull("G_lite", "Basic", 0) == 5
    assert table.data_version.counter == 3
    assert table.topics_of("G_lite") == ["Basic"]
    assert table.groups_of("Basic") == ["G_lite"]


def test_offsets_are_written_as_all_parsers_read_them(files: ConfigFiles, tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(JAVA_OFFSETS)
    table = OffsetTable(files)
    table.load()
    table.save()
    written = (tmp_path / "consumerOffset.json").read_text()
    assert '\t\t"Basic@G_lite":{\n\t\t\t"0":4,\n\t\t\t"1":10\n\t\t}' in written
    assert json.loads(written)["offsetTable"]["Basic@G_lite"] == {"0": 4, "1": 10}
    again = OffsetTable(files)
    again.load()
    assert offset_json(again) == offset_json(table) == json.loads(written)


def test_offsets_that_changed_are_taken_once(files: ConfigFiles) -> None:
    table = OffsetTable(files)
    assert table.take_changes() is None
    table.commit("G", "T", 0, QueueOffset(1), 2)
    assert table.take_changes() is not None
    assert table.take_changes() is None
    table.save_failed()
    assert table.take_changes() is not None
    table.commit_pull("G", "T", 0, QueueOffset(1))
    assert table.take_changes() is not None


def test_offsets_are_gathered_in_steps(files: ConfigFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "STEP", 10)
    table = OffsetTable(files)
    for number in range(50):
        table.commit("G", f"T{number}", 0, QueueOffset(number), 2)
        table.commit_pull("G", f"T{number}", 0, QueueOffset(number))
    begun = table.take_changes()
    assert begun is not None
    assert next(begun) is None
    table.remove_topic("T7")
    table.commit("G", "T49", 0, QueueOffset(99), 2)
    *steps, content = begun
    assert steps == [None] * 17, "five pairs with a queue each are a step"
    assert content is not None
    table.remove_group("G")
    gathered = json.loads(b"".join(content()))
    assert gathered["offsetTable"].keys() == {f"T{n}@G" for n in range(50) if n != 7}
    assert gathered["offsetTable"]["T49@G"] == {"0": 99}
    assert gathered["pullOffsetTable"].keys() == gathered["offsetTable"].keys()
    assert len(gathered["groupTopicMap"]["G"]) == 49


def test_offsets_version_counts_commits(files: ConfigFiles) -> None:
    table = OffsetTable(files, version_step=3)
    for value in range(7):
        table.commit("G", "T", 0, QueueOffset(value), 9)
        table.commit_pull("G", "T", 0, QueueOffset(value))
    assert table.data_version.counter == 2
    assert table.data_version.timestamp == 9


def test_offsets_of_a_large_broker_are_read_again(files: ConfigFiles) -> None:
    table = OffsetTable(files)
    for number in range(4_000):
        for queue_id in range(20):
            table.commit(f"{number % 10:0100}", f"{number:0100}", queue_id, QueueOffset(2**60), 1)
    table.save()
    again = OffsetTable(files)
    again.load()
    assert len(again.groups_of(f"{3_999:0100}")) == 1


def test_offsets_are_bounded_by_queues_and_names(
    files: ConfigFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turbopump.broker.tables.offset_lines.MAX_QUEUES", 3)
    table = OffsetTable(files)
    for queue_id in range(5):
        table.commit("G", "T", queue_id, QueueOffset(1), 1)
    assert table.queues_of("G", "T") == {0: 1, 1: 1, 2: 1}
    table.commit("G", "T", 0, QueueOffset(2), 1)
    assert table.query("G", "T", 0) == 2
    table.save()
    monkeypatch.setattr("turbopump.broker.tables.offset_lines.MAX_QUEUES", 1)
    again = OffsetTable(files)
    again.load()
    assert again.queues_of("G", "T") == {0: 2, 1: 1, 2: 1}, "nothing saved is forgotten"
    monkeypatch.setattr("turbopump.broker.tables.offset_lines.MAX_QUEUES", 9)
    monkeypatch.setattr("turbopump.broker.tables.offset_lines.MAX_NAMES", 8)
    for name in ("123456", "1234567"):
        table.commit("G", name, 0, QueueOffset(1), 1)
    assert table.topics_of("G") == ["T"]
    table.remove_topic("T")
    for name in ("123456", "1234567", "12345678"):
        table.commit("G", name, 0, QueueOffset(1), 1)
    assert table.topics_of("G") == ["123456"]
    table.remove_group("G")
    for queue_id in range(12):
        table.commit("G", "1234567", queue_id, QueueOffset(1), 1)
    assert len(table.queues_of("G", "1234567")) == 9


def test_offsets_reset_removed_and_cloned(files: ConfigFiles) -> None:
    table = OffsetTable(files)
    notified: list[tuple[str, int]] = []
    table.on_reset = lambda topic, queue_id: notified.append((topic, queue_id))
    table.commit("G", "T", 0, QueueOffset(9), 1)
    table.set_reset("G", "T", 0, QueueOffset(4), 1)
    assert notified == [("T", 0)]
    assert table.has_reset("G", "T", 0)
    assert table.query("G", "T", 0) == 4
    assert table.take_reset("G", "T", 0) == 4
    assert table.take_reset("G", "T", 0) is None
    assert not list(table.clone_offsets("G", "H", "T", 2)), "a few entries take a single step"
    assert table.queues_of("H", "T") == {0: 4}
    table.commit_pull("G", "T", 0, QueueOffset(4))
    table.remove_group("G")
    assert table.query("G", "T", 0) == -1
    assert table.query_pull("G", "T", 0) == -1
    table.remove_topic("T")
    assert table.topics_of("H") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.json", b'{"topicConfigTable":{"T":5}}'),
        ("subscriptionGroup.json", b'{"subscriptionGroupTable":[1]}'),
        ("consumerOffset.json", b'{"offsetTable":{"T@G":{"zero":1}}}'),
    ],
)
def test_file_of_a_wrong_shape_is_named(
    files: ConfigFiles, tmp_path: Path, name: str, text: bytes
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError, match=name):
        topic_table(files)
        group_table(files)
        OffsetTable(files).load()


def test_full_tables_of_long_names_can_be_read_again() -> None:
    topic = TopicConfig("t" * names.MAX_RETRY_TOPIC_LENGTH, 1024, 1024, 6)
    group = SubscriptionGroupConfig(group_name="g" * names.MAX_GROUP_LENGTH)
    for one, name, count in (
        (topic, topic.topic_name, topics_module.MAX_TOPICS),
        (group, group.group_name, groups_module.MAX_GROUPS),
    ):
        of_one = len(fastjson.dumps({"table": {name: one.to_json()}}, pretty=True))
        assert of_one * count <= fastjson.SIZE_MAX


@pytest.mark.parametrize("name", ["g", "CID_a-b%7", 'a"b', "a\\b", "größe", "a\tb"])
@pytest.mark.parametrize("changed", [{}, {"retry_max_times": 3}, {"attributes": {"a": "ü" * 900}}])
def test_the_size_of_groups_is_that_of_their_rows(
    files: ConfigFiles, name: str, changed: dict[str, Any]
) -> None:
    groups = group_table(files)
    before, text = groups.size, len(fastjson.dumps(groups.to_json(), pretty=True).encode())
    groups.put(SubscriptionGroupConfig(group_name=name), 1)
    groups.put(SubscriptionGroupConfig(group_name=name, **changed), 2)
    groups.put(SubscriptionGroupConfig(group_name="other"), 3)
    groups.delete("other", 4)
    groups.adopt_tables(
        groups.all_groups() | {"theirs": SubscriptionGroupConfig("theirs")}, {}, groups.data_version
    )
    saved = groups.to_json() | {"dataVersion": group_table(files).data_version.to_json()}
    grown = len(fastjson.dumps(saved, pretty=True).encode()) - text
    assert groups.size - before == grown
    again = GroupTable(BrokerConfig(), TableSaver(files, InlineDisk()), lambda names: None)
    again.load(5)
    assert again.size == groups.size


def test_groups_of_the_largest_beans_stay_below_the_bytes_that_are_read_again(
    files: ConfigFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "MAX_SIZE", 20_000)
    groups = group_table(files)
    groups.put(SubscriptionGroupConfig("g", attributes={"a": "b" * 15_000}), 1)
    made = [groups.find_or_create(f"auto{number}", 1) for number in range(20)]
    assert 1 < sum(one is not None for one in made) < 20
    assert groups.size <= 20_000
    assert groups.find_or_create("auto0", 2) is made[0]


class TestTopicsOfAnOlderCopy:
    """The copy before the last save lacks the topic of that save; its messages are in the store."""

    STORED = {"One": 4, "Two": 3, "%LMQ%x": 1, "TBW102": 1}  # noqa: RUF012

    def prepare(self, files: ConfigFiles) -> None:
        saver = TableSaver(files, InlineDisk())
        table = TopicTable(BrokerConfig(), saver)
        table.add_boot_topics(1)
        for one in (TopicConfig("One", 8, 8), TopicConfig("Two", 5, 5)):
            table.put(one, 2)
            saver.begin_last_writes()

    def names(self, files: ConfigFiles) -> dict[str, int]:
        table = topic_table(files)
        table.create_from_store(self.STORED.copy, 4)
        found = {name: one.read_queue_nums for name, one in table.all_topics().items()}
        assert topic_table(files).all_topics().keys() == found.keys()
        return {name: found[name] for name in ("One", "Two", "%LMQ%x") if name in found}

    def test_a_damaged_file_is_completed_from_the_store(
        self, files: ConfigFiles, tmp_path: Path
    ) -> None:
        self.prepare(files)
        path = tmp_path / "topics.json"
        path.write_bytes(path.read_bytes()[:-20])
        assert self.names(files) == {"One": 8, "Two": 3}

    def test_a_lost_one_too(self, files: ConfigFiles, tmp_path: Path) -> None:
        self.prepare(files)
        for path in tmp_path.glob("topics.json*"):
            path.unlink()
        assert self.names(files) == {"One": 4, "Two": 3}

    def test_a_deleted_topic_does_not_come_back(self, files: ConfigFiles) -> None:
        """Queues are deleted after their topic's entry: a crash in between leaves the queues."""
        self.prepare(files)
        topic_table(files).delete("Two", 4)
        assert self.names(files) == {"One": 8}

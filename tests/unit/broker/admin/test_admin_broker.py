"""The broker as an operator sees it: figures, configuration, statistics (remoting.md 16.4)."""

import re
from typing import Any

import pytest

from turbopump.broker.runtime_info import size_text
from turbopump.engine import fastjson
from turbopump.engine.later import Later
from turbopump.net.wire.java_properties import parse_properties


def table(admin: Any) -> dict[str, str]:
    shown = admin.json(28)["table"]
    assert all(isinstance(value, str) for value in shown.values())
    return dict(shown)


def test_what_clusterlist_parses(admin: Any) -> None:
    shown = table(admin)
    for key in ("putTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps"):
        assert len([float(part) for part in shown[key].split()]) == 3
    for key in (
        "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "earliestMessageTimeStamp",
        "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "pageCacheLockTimeMills",
        "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
        "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow",
    ):  # fmt: skip
        assert int(shown[key]) >= 0
    for key in ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio"):
        assert float(shown[key]) >= 0
    assert shown["brokerActive"] == "true"
    assert shown["brokerVersionDesc"] == "V5_5_0"
    assert shown["earliestMessageTimeStamp"] == str(admin.now_ms)


def test_figures_follow_the_store(admin: Any) -> None:
    stored_ms = admin.now_ms
    for number in range(4):
        admin.send("T", b"%d" % number)
        admin.world.now_ms += 1_000
        admin.broker.store.tick(admin.now_ms)
    store = admin.broker.store
    shown = table(admin)
    assert shown["putMessageTimesTotal"] == shown["msgPutTotalTodayNow"] == "4"
    assert shown["commitLogMaxOffset"] == shown["putMessageSizeTotal"] == str(store.max_log_offset)
    assert float(shown["putMessageAverageSize"]) == store.max_log_offset / 4
    assert shown["earliestMessageTimeStamp"] == str(stored_ms)
    assert shown["runtime"] == "[ 0 days, 0 hours, 0 minutes, 4 seconds ]"
    assert float(shown["putTps"].split()[0]) == 1.0
    assert shown["dispatchBehindBytes"] == "0"
    assert shown["bootTimestamp"] == str(admin.broker.started_ms)
    assert f"commitLogDiskRatio_{store.config.log_folder}" in shown
    assert re.fullmatch(r"Total : .+iB, Free : .+iB\.", shown["commitLogDirCapacity"])


def test_figures_of_delay_levels(admin: Any) -> None:
    admin.send("T", DELAY="2")
    admin.world.pass_time(6_000)
    admin.send("T", DELAY="2")
    assert table(admin)["scheduleMessageOffset_2"] == "1,2"


def test_a_broker_that_stops_is_not_active(admin: Any) -> None:
    admin.broker.shutting_down = True
    assert table(admin)["brokerActive"] == "false"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2150, "2.1 KiB"), (252 << 30, "252.0 GiB"),
     (5000 << 50, "5000.0 PiB")],
)  # fmt: skip
def test_sizes_as_people_read_them(size: int, text: str) -> None:
    assert size_text(size) == text


def test_the_configuration(admin: Any) -> None:
    answer = admin.ask(26)
    assert fastjson.loads(answer.fields["version"]) == {
        "counter": 0, "stateVersion": 0, "timestamp": admin.broker.started_ms,
    }  # fmt: skip
    shown = {item.key: item.value for item in parse_properties(bytes(answer.body).decode())}
    assert shown["brokerName"] == "broker-a"
    assert shown["listenPort"] == "10911"
    assert list(shown) == sorted(shown)


def test_a_live_key_changes_at_once(admin: Any) -> None:
    saved: list[bool] = []
    admin.broker.save_config = lambda: saved.append(True)
    answer = admin.ask(25, b"autoCreateTopicEnable=false\ntraceOn=false\n")
    assert (answer.code, answer.remark) == (0, None)
    assert admin.broker.config.auto_create_topic_enable is False
    assert admin.broker.config.trace_on is False
    assert saved == [True]
    assert fastjson.loads(admin.ask(26).fields["version"])["counter"] == 1
    assert admin.registered == []


def test_permission_is_told_to_the_name_servers_first(admin: Any) -> None:
    told: Later[None] = Later()
    asked: list[list[str]] = []

    def register(names: list[str]) -> Later[None]:
        asked.append(names)
        return told

    admin.broker.register_topics = register
    version = admin.broker.topics.data_version
    answer = admin.begin(25, b"brokerPermission=4\n")
    assert isinstance(answer, Later)
    assert not answer.done
    assert asked == [[]]
    assert admin.broker.topics.data_version.counter == version.counter + 1
    told.resolve(None)
    assert answer.value.code == 0
    assert not admin.broker.config.writable


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("configBlackList=a", 16, "black list"),
        ("brokerConfigPath=a", 16, "black list"),
        ("regionId=elsewhere", 16, "black list"),
        ("brokerName=b", 1, "brokerName cannot change while the broker runs"),
        ("listenPort=1", 1, "listenPort cannot change"),
        ("messageDelayLevel=1s", 1, "messageDelayLevel cannot change"),
        ("storePathRootDir=elsewhere", 1, "cannot change"),
        ("tls.server.mode=disabled", 1, "cannot change"),
        ("traceOnn=false", 1, "unknown key traceOnn"),
        ("traceOn=maybe", 1, "traceOn=maybe"),
        ("aclEnable=true", 1, "aclEnable=true is not supported"),
        ("fileReservedTime=1", 1, "needs a restart"),
        ("", 1, "no key=value"),
        ("traceOn=\\u12", 1, "hexadecimal"),
    ],
)
def test_refused_changes_change_nothing(make_admin: Any, body: str, code: int, says: str) -> None:
    admin = make_admin("configBlackList=regionId\n")
    before = admin.broker.config.values()
    live = "autoCreateTopicEnable=false\n" if body else ""
    answer = admin.ask(25, f"{live}{body}\n".encode())
    assert answer.code == code
    assert says in answer.remark
    assert admin.broker.config.values() == before


def test_keys_without_effect_are_taken_with_a_note(admin: Any) -> None:
    answer = admin.ask(25, b"sendMessageThreadPoolNums=8\naclEnable=false\n")
    assert (answer.code, answer.remark) == (
        0, "sendMessageThreadPoolNums has no effect in this broker",
    )  # fmt: skip


def test_store_keys_are_kept_for_the_next_start(admin: Any) -> None:
    admin.broker.config.path = "broker.conf"
    answer = admin.ask(25, b"fileReservedTime=1\n")
    assert (answer.code, answer.remark) == (0, "fileReservedTime is taken over at the next start")
    assert admin.broker.config.store.file_reserved_time_hours == 1
    assert admin.broker.store.config.file_reserved_time_hours == 72


def test_a_file_that_cannot_be_written_is_said(admin: Any) -> None:
    def save() -> None:
        raise PermissionError("read-only")

    admin.broker.save_config = save
    answer = admin.ask(25, b"traceOn=false\n")
    assert answer.code == 0
    assert answer.remark == "taken over, but lost at a restart: read-only"


def test_switching_automatic_creation_on_makes_it_work(make_admin: Any) -> None:
    admin = make_admin("autoCreateTopicEnable=false\n")
    assert admin.broker.topics.get("TBW102") is None
    assert admin.ask(25, b"autoCreateTopicEnable=true\n").code == 0
    assert admin.broker.topics.get("TBW102").perm == 7
    admin.send("New")


def test_statistics_of_topics_groups_and_the_broker(admin: Any) -> None:
    statistics = admin.broker.statistics
    for _ in range(3):
        admin.send("T")
        statistics.puts(admin.broker.store.statistics.put_count_by_topic)
        statistics.got("g", "T", 3, 30)
        statistics.sample(admin.now_ms)
        admin.world.now_ms += 10_000
    cases = (
        ("TOPIC_PUT_NUMS", "T", 3),
        ("GROUP_GET_NUMS", "T@g", 9),
        ("GROUP_GET_SIZE", "T@g", 90),
        ("BROKER_PUT_NUMS", "DefaultCluster", 3),
        ("BROKER_GET_NUMS", "DefaultCluster", 9),
    )
    for name, key, total in cases:
        body = admin.json(315, statsName=name, statsKey=key)
        assert body["statsMinute"]["sum"] == total
        assert body["statsMinute"]["tps"] == total / 30
        assert set(body) == {"statsMinute", "statsHour", "statsDay"}


@pytest.mark.parametrize(
    ("name", "key"),
    [("TOPIC_PUT_NUMS", "U"), ("NO_SUCH_NUMS", "T"), ("BROKER_PUT_NUMS", "other"),
     ("TOPIC_PUT_NUMS", "")],
)  # fmt: skip
def test_statistics_nobody_took(admin: Any, name: str, key: str) -> None:
    answer = admin.ask(315, statsName=name, statsKey=key)
    assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")

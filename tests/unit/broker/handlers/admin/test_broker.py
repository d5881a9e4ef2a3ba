"""Admin requests on the broker: figures, configuration, statistics (remoting.md 16.4)."""

import re
from typing import Any

import pytest

from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.config.known_keys import IDLE_KEYS
from turbopump.broker.introspection.runtime_info import size_text
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.config.node_config import declared_keys
from turbopump.net.wire.java_properties import Property, parse_properties

LIVE_KEYS = {name for name, one in declared_keys(BrokerConfig).items() if one.key.live}


def table(admin: Any) -> dict[str, str]:
    shown = admin.json(28)["table"]
    assert all(isinstance(value, str) for value in shown.values())
    return dict(shown)


def test_a_body_that_clusterlist_parses(admin: Any) -> None:
    shown = table(admin)
    assert shown["getTransferedTps"] == shown["getTransferredTps"]
    for key in ("putTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps"):
        assert len([float(part) for part in shown[key].split()]) == 3
    for key in (
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "earliestMessageTimeStamp",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
    ):
        assert int(shown[key]) >= 0
    for key in ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio"):
        assert float(shown[key]) >= 0
    assert shown["brokerActive"] == "true"
    assert (shown["brokerVersion"], shown["brokerVersionDesc"]) == ("513", "V5_5_0")
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
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2150, "2.1 KiB"),
        (252 << 30, "252.0 GiB"),
        (5000 << 50, "5000.0 PiB"),
    ],
)
def test_sizes_as_people_read_them(size: int, text: str) -> None:
    assert size_text(size) == text


def test_the_configuration(admin: Any) -> None:
    response = admin.ask(26)
    assert fastjson.loads(response.fields["version"]) == {
        "counter": 0,
        "stateVersion": 0,
        "timestamp": admin.broker.started_ms,
    }
    shown = {item.key: item.value for item in parse_properties(bytes(response.body).decode())}
    assert shown["brokerName"] == "broker-a"
    assert shown["listenPort"] == "10911"
    assert list(shown) == sorted(shown)


def test_a_live_key_changes_at_once_and_is_answered_when_it_is_saved(admin: Any) -> None:
    admin.broker.config.path = "broker.conf"
    durable: Deferred[OSError | None] = Deferred()
    saved: list[list[Property]] = []

    def save(changed: list[Property]) -> Deferred[OSError | None]:
        saved.append(list(changed))
        return durable

    admin.broker.save_config = save
    response = admin.begin(25, b"autoCreateTopicEnable=false\ntraceOn=false\n")
    assert admin.broker.config.auto_create_topic_enable is False
    assert admin.broker.config.trace_on is False
    assert [(item.key, item.value) for item in saved[0]] == [
        ("autoCreateTopicEnable", "false"),
        ("traceOn", "false"),
    ]
    assert isinstance(response, Deferred)
    assert not response.done
    durable.resolve(None)
    assert (response.value.code, response.value.remark) == (0, None)
    assert fastjson.loads(admin.ask(26).fields["version"])["counter"] == 1
    assert admin.registered == []


def test_limits_of_retention_and_flushing_change_at_once(admin: Any) -> None:
    body = b"fileReservedTime=1\ndeleteWhen=05;17\ndiskMaxUsedSpaceRatio=60\nsyncFlushTimeout=7\n"
    assert admin.ask(25, body).code == 0
    config = admin.broker.store.config
    assert config.file_reserved_time_hours == 1
    assert config.delete_hours() == {5, 17}
    assert (config.disk_max_used_space_ratio, config.sync_flush_timeout_ms) == (60, 7)
    shown = {item.key: item.value for item in parse_properties(admin.ask(26).body.decode())}
    assert (shown["fileReservedTime"], shown["deleteWhen"]) == ("1", "05;17")


def test_every_live_key_is_taken_with_its_own_value(admin: Any) -> None:
    shown = admin.broker.config.values_as_text()
    for key in sorted(LIVE_KEYS):
        response = admin.ask(25, f"{key}={shown[key]}\n".encode())
        assert response.code == 0, response.remark


def test_all_that_is_shown_may_be_sent_back(admin: Any) -> None:
    """A console sends the whole configuration back after one change; only changeable keys are
    saved."""
    body = bytes(admin.ask(26).body).replace(b"fileReservedTime=72\n", b"fileReservedTime=7\n")
    response = admin.ask(25, re.sub(rb"configBlackList=.*\n", b"", body))
    assert response.code == 0, response.remark
    assert admin.broker.store.config.file_reserved_time_hours == 7
    kept = dict(admin.world.saved[0])
    assert kept["fileReservedTime"] == "7"
    assert kept.keys() <= LIVE_KEYS | IDLE_KEYS.keys()


def test_a_broker_without_a_file_says_how_long_a_change_holds(admin: Any) -> None:
    response = admin.ask(25, b"traceOn=false\n")
    assert response.code == 0
    assert response.remark == "in force until this broker stops: it has no configuration file"


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"a\\=b=1", "is no key"),
        (b"region\\nId=x", "is no key"),
        (b"region\0Id=x", "is no key"),
        (b"=x", "is no key"),
        (b"regionId=a\\nlistenPort\\=1", "not one line of text"),
        (b"regionId=a\0b", "not one line of text"),
        (b"regionId=\xff", "not UTF-8"),
        (b"regionId=" + b"x" * (1 << 20), "exceeds 65536 bytes"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused(admin: Any, body: bytes, remark: str) -> None:
    before = admin.broker.config.values_as_text()
    response = admin.ask(25, b"traceOn=false\n" + body)
    assert response.code == 1
    assert remark in response.remark
    assert len(response.remark) < 300
    assert admin.broker.config.values_as_text() == before
    assert admin.world.saved == []


def test_credentials_are_never_shown(make_admin: Any) -> None:
    text = "".join(
        f"{key}=hidden\n"
        for key in (
            "metricsGrpcExporterHeader",
            "tls.server.keyPassword",
            "tls.client.keyPassword",
        )
    )
    config, _ = load_config(text)
    assert "hidden" not in str(config.values_as_text())
    admin = make_admin()
    response = admin.ask(25, b"metricsGrpcExporterHeader=hidden\n")
    assert response.code == 0
    assert "hidden" not in response.remark
    assert b"hidden" not in admin.ask(26).body
    refused = admin.ask(25, b'socksProxyConfig={"0.0.0.0/0":{"password":"hidden"}}\n')
    assert refused.code == 1
    assert "hidden" not in refused.remark


def test_permission_is_told_to_the_name_servers_first(admin: Any) -> None:
    result: Deferred[None] = Deferred()
    asked: list[list[str]] = []

    def register(names: list[str]) -> Deferred[None]:
        asked.append(names)
        return result

    admin.broker.register_topics = register
    version = admin.broker.topics.data_version
    response = admin.begin(25, b"brokerPermission=4\n")
    assert isinstance(response, Deferred)
    assert not response.done
    assert asked == [[]]
    assert admin.broker.topics.data_version.counter == version.counter + 1
    result.resolve(None)
    assert response.value.code == 0
    assert not admin.broker.config.is_writable


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        ("configBlackList=a", 16, "black list"),
        ("rocketmqHome=a", 16, "black list"),
        ("brokerConfigPath=a", 16, "black list"),
        ("regionId=elsewhere", 16, "black list"),
        ("brokerName=b", 1, "brokerName cannot change while the broker runs"),
        ("listenPort=1", 1, "listenPort cannot change"),
        ("messageDelayLevel=1s", 1, "messageDelayLevel cannot change"),
        ("storePathRootDir=elsewhere", 1, "cannot change"),
        ("tls.server.mode=disabled", 1, "cannot change"),
        ("traceOnn=false", 1, "unknown key traceOnn"),
        ("traceOn=maybe", 1, "traceOn=maybe"),
        ("aclEnable=true", 1, "aclEnable=true: not supported yet, only false"),
        ("mappedFileSizeCommitLog=4194304", 1, "mappedFileSizeCommitLog cannot change while"),
        ("fileReservedTime=-1", 1, "fileReservedTime=-1"),
        ("storeType=defaultRocksDB", 1, "not supported yet"),
        ("flushDiskType=SYNC_FLUSH\nlistenPort=1\nx=y", 1, "listenPort cannot change while the"),
        ("minInSyncReplicas=2", 1, "minInSyncReplicas=2"),
        ("", 1, "no key=value"),
        ("traceOn=\\u12", 1, "hexadecimal"),
    ],
)
def test_refused_changes_change_nothing(make_admin: Any, body: str, code: int, remark: str) -> None:
    admin = make_admin("configBlackList=regionId\n")
    before = admin.broker.config.values_as_text()
    live = "autoCreateTopicEnable=false\n" if body else ""
    response = admin.ask(25, f"{live}{body}\n".encode())
    assert response.code == code
    assert remark in response.remark
    assert admin.broker.config.values_as_text() == before


def test_keys_without_effect_are_taken_with_a_note(admin: Any) -> None:
    admin.broker.config.path = "broker.conf"
    response = admin.ask(25, b"sendMessageThreadPoolNums=8\naclEnable=false\n")
    assert (response.code, response.remark) == (
        0,
        "known, but without effect here: sendMessageThreadPoolNums=8 (line 1)",
    )


def test_a_file_that_cannot_be_written_is_said(admin: Any) -> None:
    admin.broker.config.path = "broker.conf"
    admin.world.save_error = PermissionError("read-only")
    response = admin.ask(25, b"traceOn=false\n")
    assert response.code == 0
    assert response.remark == "in force, but lost at a restart: read-only"


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
        stored = admin.broker.store.statistics
        statistics.set_put_totals(stored.put_count_by_topic, stored.put_size_by_topic)
        statistics.count_delivered("g", "T", 3, 30)
        statistics.count_sent_back("g", "T")
        statistics.sample(admin.now_ms)
        admin.world.now_ms += 10_000
    cases = (
        ("TOPIC_PUT_NUMS", "T", 3),
        ("TOPIC_PUT_SIZE", "T", admin.broker.store.max_log_offset),
        ("SNDBCK_PUT_NUMS", "T@g", 3),
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
    [
        ("TOPIC_PUT_NUMS", "U"),
        ("NO_SUCH_NUMS", "T"),
        ("BROKER_PUT_NUMS", "other"),
        ("TOPIC_PUT_NUMS", ""),
    ],
)
def test_statistics_without_samples(admin: Any, name: str, key: str) -> None:
    response = admin.ask(315, statsName=name, statsKey=key)
    assert (response.code, response.remark) == (1, f"The stats <{name}> <{key}> not exist")

"""Properties: RocketMQ's keys, and messages about invalid ones."""

from pathlib import Path

import pytest

from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.config.kinds import parse_delay_levels
from turbopump.broker.config.known_keys import IDLE_KEYS
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.lifecycle.replication_setup import membership_options, options_of
from turbopump.engine.types import FlushMode
from turbopump.net.config.idle import is_secret
from turbopump.net.config.node_config import declared_keys
from turbopump.net.transport.options import TlsMode
from turbopump.net.wire.java_properties import ConfigError, format_properties, parse_properties

KEYS = Path(__file__).parents[3] / "golden" / "config_keys_5_5_0.tsv"

ELECTED = "enableControllerMode=true\ncontrollerAddr=10.0.0.1:9878;10.0.0.2:9878\n"


def test_defaults_are_rocketmqs() -> None:
    config, warnings = load_config("")
    assert not warnings
    assert config.listen_port == 10911
    assert config.default_topic_queue_nums == 8
    assert config.broker_permission == 6
    assert config.delay_levels_ms[:4] == [1_000, 5_000, 10_000, 30_000]
    assert len(config.delay_levels_ms) == 18
    assert config.store.max_message_size == 4 << 20


def test_keys_of_broker_store_and_tls() -> None:
    config, warnings = load_config(
        "brokerName = b1\nnamesrvAddr=127.0.0.1:9876; 10.0.0.2:9876\nflushDiskType=SYNC_FLUSH\n"
        "storePathRootDir=/data/b1\nautoCreateTopicEnable=FALSE\ntls.server.mode=enforcing\n"
        "messageDelayLevel=1s 2d\n"
    )
    assert not warnings
    assert config.broker_name == "b1"
    assert config.namesrv_addr == ["127.0.0.1:9876", "10.0.0.2:9876"]
    assert config.store.flush_disk_type is FlushMode.SYNC_FLUSH
    assert config.store.root == "/data/b1"
    assert config.auto_create_topic_enable is False
    assert config.tls.mode is TlsMode.ENFORCING
    assert config.delay_levels_ms == [1_000, 172_800_000]


def test_keys_of_assignments() -> None:
    config, warnings = load_config(
        "machineRooms=hz:10.0.1.,broker-a ; sh:10.0.2.\n"
        "rebalanceStrategy=MACHINE_ROOM_NEARBY-STICKY\n"
        "rebalanceMode=CLIENT\nrebalanceHandoverTime=0\nrebalanceHistorySize=0\n"
        "serverLoadBalancerEnable=false\ndefaultPopShareQueueNum=-1\ndefaultMessageRequestMode=PULL\n"
    )
    assert not warnings
    assert config.machine_rooms.of_client("10.0.2.7@DEFAULT") == "sh"
    assert config.machine_rooms.of_broker("broker-a") == "hz"
    shown = config.values_as_text()
    assert shown["machineRooms"] == "hz:10.0.1.,broker-a;sh:10.0.2."
    assert (
        load_config(f"machineRooms={shown['machineRooms']}")[0].machine_rooms
        == config.machine_rooms
    )
    for wrong in (
        "machineRooms=hz",
        "machineRooms=hz:",
        "machineRooms=" + ";".join(f"r{number}:p" for number in range(201)),
        "rebalanceMode=BOTH",
        "rebalanceStrategy=RANDOM",
        "rebalanceHandoverTime=-1",
        "rebalanceHistorySize=-1",
        "defaultMessageRequestMode=PUSH",
        "defaultPopShareQueueNum=x",
    ):
        with pytest.raises(ConfigError):
            load_config(wrong)


def test_unknown_key_is_named_with_its_line() -> None:
    _, warnings = load_config("# a comment\n\nbrokerNmae=b1\n")
    assert warnings == ["unknown key brokerNmae ignored (line 3) (did you mean brokerName?)"]


def keys_of_rocketmq(*classes: str) -> dict[str, str]:
    """The default of each key of 5.5.0's classes; "" for null and what depends on the machine."""
    lines = KEYS.read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    assert len(rows) == 743
    return {key: "" if text == "null" else text for of, key, _, text in rows if of in classes}


BROKERS = (
    "BrokerConfig",
    "MessageStoreConfig",
    "AuthConfig",
    "NettyServerConfig",
    "NettyClientConfig",
)


def test_every_key_of_rocketmq_is_honoured_or_says_that_it_is_not() -> None:
    """Each key is quiet with RocketMQ's default; with a different value it shows the value in
    force, is an error, or is named in the warning."""
    defaults = keys_of_rocketmq(*BROKERS)
    assert len(keys_of_rocketmq("BrokerConfig", "MessageStoreConfig")) == 463
    honoured = {*declared_keys(BrokerConfig), "useTLS"}
    for key, default in defaults.items():
        assert (key in honoured) != (key in IDLE_KEYS), key
        assert load_config(f"{key}={default}\n" if default else "")[1] == [], key
        if key in IDLE_KEYS:
            other = {"true": "false", "false": "true"}.get(default, "7331")
            quiet = IDLE_KEYS[key].is_quiet(other)
            try:
                _, warnings = load_config(f"{key}={other}\n")
            except ConfigError as error:
                assert "not supported yet" in str(error), key
                assert IDLE_KEYS[key].harm, key
            else:
                shown = key if is_secret(key) else f"{key}={other}"
                named = [f"known, but without effect here: {shown} (line 1)"]
                assert warnings == ([] if quiet else named), key
                assert not IDLE_KEYS[key].harm or quiet, key


@pytest.mark.parametrize(
    "line",
    [
        "messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore",
        "metricsExporterType=OTLP_GRPC",
        "metricsExporterType=1",
        "metricsExporterType=LOG",
        "fetchNamesrvAddrByAddressServer=true",
        "readOnlyCommitLogStorePaths=/mnt/old",
        "storePathCommitLog=/mnt/a,/mnt/b",
        "storeType=defaultRocksDB",
        "transRocksDBEnable=true",
        "timerRocksDBEnable=true",
        "indexRocksDBEnable=true",
        "rocksdbCQDoubleWriteEnable=true",
        "configManagerVersion=v2",
        "useSingleRocksDBForAllConfigs=true",
        "aclEnable=true",
        "enableLmq=true",
        "enableMultiDispatch=true",
        "rejectPullConsumerEnable=true",
        "enableDLegerCommitLog=true",
        "duplicationEnable=true",
        "forceVerifyPropCRC=true",
        "tls.config.file=/etc/rocketmq/tls.properties",
        "tls.protocols=TLSv1.3",
        "tls.ciphers=AES",
        'socksProxyConfig={"0.0.0.0/0":{"password":"hidden"}}',
    ],
)
def test_a_key_that_is_harmful_to_ignore_is_an_error(line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(f"brokerName=b\n{line}\n")
    text = str(raised.value)
    assert line.partition("=")[0] in text
    assert "(line 2)" in text
    assert "hidden" not in text


def test_keys_without_effect_are_named_once_and_shown() -> None:
    config, warnings = load_config(
        "sendMessageThreadPoolNums=16\ntransientStorePoolEnable=true\nserverWorkerThreads=8\n"
        "haSlaveFallbehindMax=1\nenableAutoInSyncReplicas=true\n"
        "metricsGrpcExporterHeader=secret\n"
    )
    assert warnings == [
        "known, but without effect here: sendMessageThreadPoolNums=16 (line 1), "
        "transientStorePoolEnable=true (line 2), haSlaveFallbehindMax=1 (line 4), "
        "enableAutoInSyncReplicas=true (line 5), metricsGrpcExporterHeader (line 6)"
    ]
    shown = config.values_as_text()
    assert shown["sendMessageThreadPoolNums"] == "16"
    assert shown["serverWorkerThreads"] == "8"
    assert "secret" not in format_properties(shown)


def test_all_keys_are_shown_with_their_values_in_force() -> None:
    shown = load_config("")[0].values_as_text()
    never = {"brokerConfigPath", "haMasterAddress", "storePathBrokerIdentity"}  # null, as there
    for key, default in keys_of_rocketmq(*BROKERS).items():
        if default and not is_secret(key):
            assert key in shown, key
    assert never.isdisjoint(shown)
    assert shown["enableCompaction"] == "false"
    assert shown["rejectTransactionMessage"] == "false"
    assert shown["putMessageTimeout"] == "8000"
    assert shown["useTLS"] == "false"
    assert load_config("tls.enable=true")[0].values_as_text()["useTLS"] == "true"
    assert (
        load_config("storePathRootDir=/d")[0].values_as_text()["storePathCommitLog"]
        == "/d/commitlog"
    )


def test_tls_towards_name_servers_by_its_other_name() -> None:
    assert load_config("useTLS=true\n")[0].client_tls is not None
    with pytest.raises(ConfigError, match="useTLS=yes"):
        load_config("useTLS=yes\n")


def test_keys_of_groups_with_a_syncstateset() -> None:
    config, warnings = load_config(
        f"{ELECTED}storePathEpochFile=/x/epochs\ncheckSyncStateSetPeriod=2500\n"
    )
    assert not warnings
    assert config.store.epoch_path == "/x/epochs"
    assert options_of(config).sync.check_period_ms == 2_500
    assert load_config("storePathRootDir=/d")[0].store.epoch_path == "/d/epochFileCheckpoint"


def test_values_of_rocketmq_that_promise_nothing_are_silent() -> None:
    assert load_config("brokerRole=ASYNC_MASTER\naclEnable=false\nbrokerId=0\n")[1] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listenPort=ten", ["listenPort=ten", "0 to 65535", "line 2"]),
        ("listenPort=70000", ["listenPort=70000", "0 to 65535"]),
        ("defaultTopicQueueNums=0", ["defaultTopicQueueNums=0", "whole number"]),
        ("autoCreateTopicEnable=yes", ["true or false"]),
        ("namesrvAddr=nowhere", ["namesrvAddr=nowhere", "host:port"]),
        ("flushDiskType=NEVER", ["flushDiskType=NEVER", "SYNC_FLUSH"]),
        ("maxMessageSize=big", ["maxMessageSize=big"]),
        ("mappedFileSizeCommitLog=1", ["mappedFileSizeCommitLog=1", "line 2"]),
        ("messageDelayLevel=1s 5x", ["messageDelayLevel", "5m"]),
        ("brokerName=a b", ["brokerName=a b"]),
        ("brokerName=..", ["brokerName=..", "dots"]),
        ("brokerName=../x", ["brokerName=../x"]),
        ("tls.server.mode=maybe", ["tls.server.mode=maybe"]),
        ("brokerRole=PRIME", ["brokerRole=PRIME", "ASYNC_MASTER or SYNC_MASTER or SLAVE"]),
        ("inSyncReplicas=0", ["inSyncReplicas=0", "from 1 to 32", "line 2"]),
        ("haTransferBatchSize=5000000", ["haTransferBatchSize=5000000", "line 2"]),
        ("haMasterAddress=here", ["haMasterAddress=here", "host:port"]),
        ("haMasterAddress=a:1;b:2", ["one host:port"]),
        ("aclEnable=true", ["aclEnable=true", "not supported yet"]),
    ],
)
def test_bad_value_is_one_sentence_with_key_value_and_line(line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(f"brokerName=b\n{line}\n")
    text = str(raised.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerRole=SLAVE", ["brokerId must be 1 or more"]),
        ("brokerId=1", ["brokerId=1", "brokerRole=SLAVE makes a replica"]),
        ("brokerId=-1", ["brokerId=-1", "enableControllerMode"]),
        ("haGroupFile=group.json", ["haGroupFile", "1 or more"]),
        ("allAckInSyncStateSet=true", ["allAckInSyncStateSet=true", "inSyncReplicas"]),
        ("minInSyncReplicas=2\ninSyncReplicas=2\nbrokerRole=SYNC_MASTER", ["inSyncReplicas"]),
        ("enableControllerMode=true", ["controllerAddr must name"]),
        (f"{ELECTED}haGroupFile=group.json\nbrokerId=2", ["haGroupFile", "controllers"]),
        (f"{ELECTED}controllerHeartBeatTimeoutMills=2000", ["brokerHeartbeatInterval=1000"]),
        (f"{ELECTED}fetchControllerAddrByDnsLookup=true", ["fetchControllerAddrByDnsLookup"]),
        (
            "haGroupFile=group.json\nbrokerId=2\nenableSlaveActingMaster=true",
            ["haGroupFile", "enableSlaveActingMaster"],
        ),
        (
            f"{ELECTED}enableSlaveActingMaster=true\nbrokerNotActiveTimeoutMillis=2000",
            ["brokerHeartbeatInterval=1000", "brokerNotActiveTimeoutMillis=2000"],
        ),
        ("enableRemoteEscape=true", ["enableRemoteEscape", "enableSlaveActingMaster"]),
    ],
)
def test_contradiction_is_one_sentence(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(text)
    assert "\n" not in str(raised.value)
    for word in words:
        assert word in str(raised.value)


def test_keys_of_replication() -> None:
    config, warnings = load_config(
        "brokerRole=SLAVE\nbrokerId=2\nhaMasterAddress=10.0.0.1:10912\nslaveReadEnable=true\n"
        "minInSyncReplicas=2\nallAckInSyncStateSet=true\nhaListenPort=10922\n"
    )
    assert not warnings
    assert config.broker_id == 2
    assert config.slave_read_enable
    assert config.replication.is_slave
    assert config.replication.ha_master_address == "10.0.0.1:10912"
    assert config.values_as_text()["brokerRole"] == "SLAVE"
    assert config.values_as_text()["haListenPort"] == "10922"


def test_frames_of_replication_are_large_unless_the_key_says_otherwise() -> None:
    assert load_config("")[0].replication.ha_transfer_batch_size == 256 << 10
    config = load_config("haTransferBatchSize=32768")[0]
    assert config.replication.ha_transfer_batch_size == 32_768


def test_controllers_decide_whatever_role_and_id_the_file_names() -> None:
    config, warnings = load_config(
        f"{ELECTED}brokerRole=SLAVE\nbrokerId=-1\nstorePathBrokerIdentity=/x/id\n"
        "controllerHeartBeatTimeoutMills=7000\nbrokerHeartbeatInterval=500\n"
        "brokerElectionPriority=3\n"
    )
    of = config.replication
    assert not warnings
    assert of.is_elected
    assert of.has_elections
    assert of.needs_replication
    assert of.all_ack
    assert not of.is_slave
    assert of.controller_addr == ("10.0.0.1:9878", "10.0.0.2:9878")
    shown = config.values_as_text()
    assert shown["controllerAddr"] == "10.0.0.1:9878;10.0.0.2:9878"
    assert shown["enableControllerMode"] == "true"
    assert shown["allAckInSyncStateSet"] == "true"
    options = membership_options(config, PreviousShutdown())
    assert options.identity_path == "/x/id"
    assert options.controller_heart_beat_timeout_ms == 7000
    assert options.broker_election_priority == 3
    assert "storePathBrokerIdentity" not in load_config(ELECTED)[0].values_as_text()


def test_group_that_switches_waits_for_all_unless_told_otherwise() -> None:
    config, _ = load_config("haGroupFile=group.json\nbrokerId=2\nminInSyncReplicas=2\n")
    assert config.replication.all_ack
    assert config.values_as_text()["allAckInSyncStateSet"] == "true"
    config, _ = load_config("haGroupFile=group.json\nbrokerId=2\nallAckInSyncStateSet=false\n")
    assert not config.replication.all_ack


@pytest.mark.parametrize(
    ("text", "replicates"),
    [("", False), ("haListenPort=10912", True), ("brokerRole=SYNC_MASTER", True)],
)
def test_the_replicating_roles(text: str, replicates: bool) -> None:
    assert load_config(text)[0].replication.needs_replication == replicates


def test_replicas_without_waiting_sends_are_warned_of() -> None:
    _, warnings = load_config("inSyncReplicas=2\n")
    assert len(warnings) == 1
    assert "brokerRole=SYNC_MASTER" in warnings[0]
    assert load_config("inSyncReplicas=2\nbrokerRole=SYNC_MASTER\n")[1] == []


def test_bad_update_changes_nothing() -> None:
    config, _ = load_config("brokerName=b\n")
    with pytest.raises(ConfigError):
        config.update_keys(parse_properties("brokerPermission=4\nlistenPort=x\n"))
    assert config.broker_permission == 6


def test_values_load_again_as_they_are() -> None:
    config, _ = load_config("brokerName=b\nbrokerIP1=127.0.0.1\nhaListenPort=10912\n")
    again, warnings = load_config(format_properties(config.values_as_text()))
    assert not warnings
    assert again.values_as_text() == config.values_as_text()


def test_password_is_not_shown() -> None:
    config, _ = load_config("tls.server.keyPassword=secret\n")
    assert "secret" not in format_properties(config.values_as_text())


@pytest.mark.parametrize("text", ["", "1", "1s,5s", "-1s", "1s " * 65])
def test_delay_levels_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_delay_levels(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("lockInStrictMode=true", "enableSlaveActingMaster"),
        ("lockInStrictMode=true\nenableSlaveActingMaster=true", "totalReplicas=1"),
    ],
)
def test_strict_locks_of_one_broker_are_a_warning_as_in_rocketmq(text: str, word: str) -> None:
    _config, (warning,) = load_config(text)
    assert warning.startswith("lockInStrictMode=true does nothing") and word in warning

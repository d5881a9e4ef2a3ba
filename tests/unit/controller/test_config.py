from pathlib import Path

import pytest

from turbopump.controller.config import ControllerConfig, format_peers, parse_peers
from turbopump.controller.raft.options import LOG_BYTES_MAX
from turbopump.engine.keys import keys_of
from turbopump.net.wire.java_properties import ConfigError, Property, parse_properties

THREE = "n0-127.0.0.1:9877;n1-127.0.0.1:9878;n2-127.0.0.1:9879"


def read(text: str, *warnings: str) -> ControllerConfig:
    config = ControllerConfig()
    assert config.update_keys(parse_properties(text)) == list(warnings)
    return config


def test_a_file_of_rocketmqs_is_taken_as_it_is() -> None:
    config = read(
        f"controllerDLegerGroup = group1\ncontrollerDLegerPeers = {THREE}\n"
        "controllerDLegerSelfId = n1\ncontrollerStorePath=/data/controller\n"
        "mappedFileSize=1048576\nenableElectUncleanMaster=true\nserverWorkerThreads=4\n",
        "known, but without effect here: mappedFileSize=1048576 (line 5), serverWorkerThreads=4"
        " (line 7)",
    )
    assert (config.group, config.self_id) == ("group1", "n1")
    assert config.members == {
        "n0": "127.0.0.1:9877",
        "n1": "127.0.0.1:9878",
        "n2": "127.0.0.1:9879",
    }
    assert config.folder == "/data/controller/raft-n1"
    assert config.enable_elect_unclean_master
    values = config.values_as_text()
    assert values["mappedFileSize"] == "1048576"
    assert values["controllerDLegerPeers"] == THREE


def test_defaults_are_rocketmqs_but_for_the_shorter_timers() -> None:
    values = ControllerConfig().values_as_text()
    assert values["notifyBrokerRoleChanged"] == "true"
    assert values["enableElectUncleanMaster"] == "false"
    assert values["electMasterMaxRetryCount"] == "3"
    assert values["configBlackList"] == "configBlackList;configStorePath"
    assert values["isProcessReadEvent"] == "false"
    assert int(values["scanNotActiveBrokerInterval"]) < 5_000
    assert int(values["heartBeatTimeIntervalMs"]) * int(values["maxHeartBeatLeak"]) < 2_000


def test_every_key_of_rocketmqs_controller_is_known() -> None:
    """Keys without an effect are silent only with RocketMQ's default."""
    lines = (Path(__file__).parents[2] / "golden" / "config_keys_5_5_0.tsv").read_text()
    for row in lines.splitlines():
        of, key, _, default = row.split("\t")
        if of in ("ControllerConfig", "NettyServerConfig", "NettyClientConfig"):
            assert ControllerConfig.has_key(key), key
            given = [] if default == "null" else [Property(key, default)]
            assert ControllerConfig().update_keys(given) == [], key


@pytest.mark.parametrize("line", ["metricsExporterType=PROM", "socksProxyConfig={hidden}"])
def test_a_key_that_is_harmful_to_ignore_is_an_error(line: str) -> None:
    with pytest.raises(ConfigError, match="not supported yet") as raised:
        ControllerConfig().update_keys(parse_properties(line))
    assert "hidden" not in str(raised.value)


def test_both_names_of_a_read_event_mean_the_same() -> None:
    assert read("processReadEvent=true").is_process_read_event
    assert read("isProcessReadEvent=true").is_process_read_event


def test_without_peers_it_is_alone_at_its_port() -> None:
    assert read("listenPort=9877").members == {"n0": "127.0.0.1:9877"}
    assert read("listenPort=9877\nbindAddress=10.1.2.3").members == {"n0": "10.1.2.3:9877"}


def test_it_listens_where_its_peers_find_it() -> None:
    """The controller listens at its peer address, not at all addresses of the machine, unless
    configured."""
    peers = "controllerDLegerPeers=n0-10.0.0.1:9878;n1-[fd00::2]:9879\n"
    assert read(peers).listen_at == ("10.0.0.1", 9878)
    assert read(f"{peers}controllerDLegerSelfId=n1\nlistenPort=1").listen_at == ("fd00::2", 9879)
    assert read(f"{peers}bindAddress=0.0.0.0").listen_at == ("0.0.0.0", 9878)
    assert read("listenPort=9877").listen_at == ("0.0.0.0", 9877)
    assert read("listenPort=9877\nbindAddress=10.1.2.3").listen_at == ("10.1.2.3", 9877)


def test_a_controller_that_is_no_peer_is_reported() -> None:
    config = read(f"controllerDLegerPeers={THREE}\ncontrollerDLegerSelfId=n7")
    with pytest.raises(ConfigError, match="controllerDLegerSelfId=n7 is not in"):
        _ = config.members


def test_peers_in_all_their_forms() -> None:
    assert parse_peers("n0-[::1]:9877; a.b-host-1:1;") == {"n0": "[::1]:9877", "a.b": "host-1:1"}
    assert format_peers(parse_peers(THREE)) == THREE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("controllerDLegerPeers=n0:127.0.0.1:9877", "no id-host:port (line 2)"),
        ("controllerDLegerPeers=n0-127.0.0.1", "no id-host:port (line 2)"),
        ("controllerDLegerPeers=n0-127.0.0.1:0", "no id-host:port (line 2)"),
        ("controllerDLegerPeers=n0-a:1;n0-b:1", "n0 is there twice (line 2)"),
        ("controllerDLegerPeers=;", "expected 1 to 15 members (line 2)"),
        ("controllerType=jRaft", "controllerType=jRaft: expected DLedger"),
        ("controllerDLegerSelfId=n-0", "controllerDLegerSelfId=n-0: expected a name"),
        ("enableElectUncleanMaster=yes", "expected true or false (line 2)"),
        ("scanInactiveMasterInterval=1", "expected a whole number from 10 to"),
        ("minVoteIntervalMs=500\nmaxVoteIntervalMs=400", "minVoteIntervalMs=500 is above"),
    ],
)
def test_a_bad_value_is_an_error_and_changes_nothing(line: str, expected: str) -> None:
    config = ControllerConfig()
    before = config.values_as_text()
    with pytest.raises(ConfigError) as raised:
        config.update_keys(parse_properties(f"controllerDLegerGroup=g\n{line}\n"))
    assert expected in str(raised.value)
    assert config.values_as_text() == before


def test_an_unknown_key_is_named_in_a_warning() -> None:
    config = ControllerConfig()
    assert config.update_keys([Property("controllerDLedgerGroup", "g")]) == [
        "unknown key controllerDLedgerGroup ignored (did you mean controllerDLegerGroup?)"
    ]
    assert not ControllerConfig.has_key("controllerDLedgerGroup")
    assert ControllerConfig.has_key("processReadEvent")


def test_keys_no_change_may_touch() -> None:
    config = read("configBlackList=a;b")
    assert config.black_list == {"a", "b", "rocketmqHome", "configBlackList", "configStorePath"}


def test_passwords_are_not_shown() -> None:
    config = read("tls.server.keyPassword=secret")
    assert "tls.server.keyPassword" not in config.values_as_text()
    assert config.tls_properties == {"tls.server.keyPassword": "secret"}


def test_the_description_of_snapshots_names_the_bound_in_bytes() -> None:
    meaning = keys_of(ControllerConfig)["snapshot_threshold"].meaning
    assert f"{LOG_BYTES_MAX >> 20} MiB" in meaning

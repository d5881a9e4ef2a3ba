"""Allowed keys in the file of a broker in a container."""

from pathlib import Path

import pytest

from turbopump.broker.container.config import (
    BROKERS_MAX,
    AddRefused,
    ContainerConfig,
    broker_config,
)
from turbopump.net.wire.java_properties import PropertiesError, Property

KEYS = Path(__file__).parents[3] / "golden" / "config_keys_5_5_0.tsv"


def container(**values: str) -> ContainerConfig:
    made = ContainerConfig()
    assert made.update_keys([Property(key, value) for key, value in values.items()]) == []
    return made


def test_a_master_has_id_0_whatever_its_file_says() -> None:
    config, _ = broker_config("brokerName=a\nbrokerId=7\n", "a.conf", container())
    assert (config.broker_id, config.path) == (0, "a.conf")
    text = "brokerRole=SYNC_MASTER\nbrokerId=7\ntotalReplicas=2\ninSyncReplicas=2\n"
    assert broker_config(text, "", container())[0].broker_id == 0


def test_where_controllers_give_ids_the_file_counts() -> None:
    text = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9\nbrokerId=-1\n"
    assert broker_config(text, "", container())[0].broker_id == -1


def test_the_port_of_replicas_is_behind_the_brokers() -> None:
    text = "listenPort=20911\nhaListenPort=10912\n"
    assert broker_config(text, "", container())[0].replication.ha_listen_port == 20_912
    text = "listenPort=0\nhaListenPort=10912\n"
    assert broker_config(text, "", container())[0].replication.ha_listen_port == 0
    config, _ = broker_config("listenPort=20911\n", "", container())
    assert not config.replication.needs_replication, (
        "a master alone needs none, as without a container"
    )


def test_name_servers_of_the_container_are_its_brokers() -> None:
    config, warnings = broker_config("namesrvAddr=b:1\n", "", container(namesrvAddr="a:1;c:2"))
    assert config.namesrv_addr == ["a:1", "c:2"]
    assert warnings == ["namesrvAddr=b:1 does nothing: the container has a:1;c:2"]
    assert broker_config("namesrvAddr=b:1\n", "", container())[0].namesrv_addr == ["b:1"]


def test_look_ups_of_the_containers_names_are_its_brokers() -> None:
    looks = container(
        namesrvAddr="a:1", fetchNameSrvAddrByDnsLookup="true", fetchNamesrvAddrInterval="77"
    )
    config, warnings = broker_config("fetchNameSrvAddrByDnsLookup=false\n", "", looks)
    assert config.fetch_namesrv_addr_by_dns_lookup
    assert config.fetch_namesrv_addr_interval_ms == 77
    assert warnings == ["fetchNameSrvAddrByDnsLookup=false does nothing: the container has true"]
    own = "namesrvAddr=b:1\nfetchNameSrvAddrByDnsLookup=true\n"
    config, warnings = broker_config(own, "", container())
    assert (config.fetch_namesrv_addr_by_dns_lookup, warnings) == (True, [])


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("", "addBroker properties empty"),
        ("# nothing\n", "addBroker properties empty"),
        (
            "root:*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
            "the file is no properties file of a broker: it has no key of a broker",
        ),
        ("brokerRole=SLAVE\n", "slave broker id must be > 0"),
        ("brokerRole=SLAVE\nbrokerId=-3\n", "slave broker id must be > 0"),
        ("inSyncReplicas=2\n", "invalid replicas number"),
        ("totalReplicas=3\nminInSyncReplicas=2\n", "invalid replicas number"),
    ],
)
def test_rocketmqs_refusals(text: str, remark: str) -> None:
    with pytest.raises(AddRefused) as refused:
        broker_config(text, "", container())
    assert str(refused.value) == remark


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a=\\u00\n", "line 1"),
        ("\nlistenPort=many\nhaListenPort=1\n", "listenPort=many"),
        ("listenPort=65535\nhaListenPort=1\n", "haListenPort=65536"),
        ("brokerName=../b\n", "brokerName=../b"),
        (f"brokerName={'n' * 1_000}\n", "1 to 127 letters"),
        (f"totalReplicas={'9' * 5_000}\n", "totalReplicas"),
        ("enableDLegerCommitLog=true\n", "enableDLegerCommitLog"),
        ("duplicationEnable=true\n", "duplicationEnable"),
        ("enableRemoteEscape=true\n", "enableRemoteEscape"),
    ],
)
def test_bad_files_are_one_sentence(text: str, named: str) -> None:
    with pytest.raises(PropertiesError) as failed:
        broker_config(text, "", container())
    message = str(failed.value)
    assert named in message and message.isprintable() and len(message) < 500


def test_the_files_of_a_container_are_bounded() -> None:
    assert container(brokerConfigPaths=" a.conf:/b.conf: ").broker_config_paths == [
        "a.conf",
        "/b.conf",
    ]
    for text in (":".join("x" * (BROKERS_MAX + 1)), "x" * 5_000):
        with pytest.raises(PropertiesError, match="brokerConfigPaths"):
            ContainerConfig().update_keys([Property("brokerConfigPaths", text)])


def test_no_request_changes_which_brokers_there_are() -> None:
    assert ContainerConfig().is_black_listed("brokerConfigPaths")
    assert ContainerConfig().values_as_text()["listenPort"] == "10811"


def test_every_key_of_rocketmq_is_known() -> None:
    classes = ("BrokerContainerConfig", "NettyServerConfig", "NettyClientConfig")
    lines = [line.split("\t") for line in KEYS.read_text().splitlines()]
    keys = [key for name, key, *_ in lines if name in classes]
    assert len(keys) > 40
    assert [key for key in keys if not ContainerConfig.has_key(key)] == []

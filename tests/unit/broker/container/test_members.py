"""Brokers of a container have different names, folders and ports."""

from types import SimpleNamespace
from typing import Any

import pytest

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.container.config import BROKERS_MAX, ContainerConfig, broker_config
from turbopump.broker.container.members import (
    ContainerMember,
    ExclusiveResource,
    LifeStage,
    Members,
    claims_of,
    own_claims,
)
from turbopump.broker.container.node import MAPPING_SHARES_MIN, ContainerNode, SharedProcessFiles
from turbopump.engine.disk.real_files import MAPPED_FILES_MIN, RealFiles
from turbopump.net.wire.java_properties import Property


def configured(text: str) -> BrokerConfig:
    return broker_config(text, "", ContainerConfig())[0]


def node(broker_id: int = 0, known: bool = True) -> Any:
    role = SimpleNamespace(
        broker_id=broker_id, is_known=known, is_active_master=known and broker_id == 0
    )
    return SimpleNamespace(context=SimpleNamespace(role=role), address="a:1")


def joined(members: Members, text: str, folder: str, made: Any = None) -> ContainerMember:
    config = configured(text)
    claims = claims_of(config, [folder])
    assert members.reason_to_refuse(config, claims) == ""
    member = ContainerMember(config, made or node(), claims)
    members.add(member)
    return member


def refused(members: Members, text: str, folder: str) -> str:
    config = configured(text)
    return members.reason_to_refuse(config, claims_of(config, [folder]))


@pytest.mark.parametrize(
    ("text", "folder", "reason"),
    [
        (
            "brokerName=a\nlistenPort=1\n",
            "/other",
            "DefaultCluster_a_0 has already been added to current broker container",
        ),
        ("brokerName=b\nlistenPort=1\n", "/a", "the folder /a is that of DefaultCluster_a_0"),
        ("brokerName=b\nlistenPort=1\n", "/a/b", "the folder /a/b and the folder /a of"),
        ("brokerName=b\nlistenPort=1\n", "/", "the folder / and the folder /a of"),
        ("brokerName=b\nlistenPort=20911\n", "/b", "port 20911 is that of DefaultCluster_a_0"),
        ("brokerName=b\nlistenPort=20913\n", "/b", "the VIP port 20911 is that of"),
        ("brokerName=b\nlistenPort=20909\n", "/b", "port 20909 is that of"),
        ("brokerName=b\nlistenPort=20912\n", "/b", "port 20912 is that of"),
        ("brokerName=b\nlistenPort=1\ngrpcServerPort=20911\n", "/b", "gRPC 20911 is that of"),
        (
            "brokerName=b\nlistenPort=1\nmetricsExporterType=PROM\nmetricsPromExporterPort=20911\n"
            "metricsPromExporterHost=0.0.0.0\n",
            "/b",
            "the port of metrics 20911 is that of",
        ),
        ("brokerName=b\nlistenPort=10811\n", "/b", "port 10811 is the container's own"),
        ("brokerName=b\nlistenPort=10809\n", "/b", "port 10809 is the container's own"),
    ],
)
def test_a_name_in_use_is_refused(text: str, folder: str, reason: str) -> None:
    members = Members(own_claims("0.0.0.0", 10_811, True))
    joined(members, "brokerName=a\nlistenPort=20911\nhaListenPort=1\n", "/a")
    assert reason in refused(members, text, folder)


def test_an_absent_broker_is_not_there() -> None:
    members = Members(own_claims("0.0.0.0", 10_811, True))
    first = joined(members, "brokerName=a\nlistenPort=20911\n", "/a")
    joined(members, "brokerName=b\nlistenPort=20921\n", "/b")
    joined(members, "brokerName=a\nbrokerClusterName=C\nlistenPort=0\n", "/c")
    joined(members, "brokerName=a\nbrokerRole=SLAVE\nbrokerId=1\nlistenPort=0\n", "/d")
    assert "already" in refused(members, "brokerName=a\nlistenPort=20911\n", "/a")
    members.remove_member(first)
    assert refused(members, "brokerName=a\nlistenPort=20911\n", "/a") == ""


def test_ports_of_different_hosts_are_different() -> None:
    one, two = (
        ExclusiveResource("port 1", "127.0.0.1", 1),
        ExclusiveResource("port 1", "127.0.0.2", 1),
    )
    assert not one.conflicts_with(two)
    assert one.conflicts_with(ExclusiveResource("port 1", "0.0.0.0", 1)) and not one.conflicts_with(
        ExclusiveResource("port 2", "", 2)
    )


def test_a_container_is_bounded() -> None:
    members = Members([])
    for number in range(BROKERS_MAX):
        joined(members, f"brokerName=b{number}\nlistenPort=0\n", f"/{number}")
    assert refused(members, "brokerName=one-more\nlistenPort=0\n", "/more") == (
        f"a container has at most {BROKERS_MAX} brokers"
    )


ELECTED = "brokerName=e\nenableControllerMode=true\ncontrollerAddr=c:1\nbrokerId=-1\nlistenPort=0\n"


def test_a_request_means_the_id_that_clients_see() -> None:
    members = Members([])
    master = joined(members, ELECTED, "/1", node(0))
    replica = joined(members, ELECTED, "/2", node(2))
    for one in (master, replica):
        assert one.id == -1, "no controller has answered yet"
        one.state = LifeStage.SERVING
    assert members.find("DefaultCluster", "e", 0) is master and master.is_master
    assert members.find("DefaultCluster", "e", 2) is replica and not replica.is_master
    assert members.find("DefaultCluster", "e", 1) is None
    assert members.find("Other", "e", 0) is None
    waiting = joined(members, ELECTED, "/3", node(-1, known=False))
    waiting.state = LifeStage.SERVING
    assert members.find("DefaultCluster", "e", 1) is waiting, "it has no other name"


def test_one_that_is_being_stopped_is_not_found_and_not_forgotten() -> None:
    members = Members([])
    member = joined(members, "brokerName=a\nlistenPort=20911\n", "/a")
    member.state = LifeStage.STOPPING
    assert members.find("DefaultCluster", "a", 0) is None
    assert "already been added" in refused(members, "brokerName=a\nlistenPort=20911\n", "/a")


def test_mapped_files_are_shared_out() -> None:
    """The kernel limits the mappings of a process, which all its brokers share."""
    whole = RealFiles().mapping_limit()
    assert SharedProcessFiles(lambda: 1).mapping_limit() == whole // MAPPING_SHARES_MIN
    assert SharedProcessFiles(lambda: 10).mapping_limit() == whole // 10
    assert SharedProcessFiles(lambda: 1 << 20).mapping_limit() == MAPPED_FILES_MIN


def test_changed_keys_of_name_servers_reach_brokers_that_run() -> None:
    config = ContainerConfig()
    container, saves = ContainerNode(config), list[str]()

    def made(name: str) -> Any:
        one = node()
        one.context.save_config = lambda _changed: saves.append(name)
        return one

    serving, starting = (
        joined(container.members, f"brokerName={name}\nlistenPort={port}\n", f"/{name}", made(name))
        for name, port in (("a", 20_911), ("b", 20_811))
    )
    serving.state = LifeStage.SERVING
    for changed in (
        {"fetchNameSrvAddrByDnsLookup": "true"},
        {"namesrvAddr": "names:1"},
        {"fetchNamesrvAddrInterval": "77"},
    ):
        config.update_keys([Property(*item) for item in changed.items()])
        container._share_name_servers()
        container._share_name_servers()
    assert saves == ["a", "a"], "nothing without a namesrvAddr, nothing twice, only what serves"
    for member in (serving, starting):
        assert member.config.name_servers == ["names:1"]
        assert member.config.fetch_namesrv_addr_by_dns_lookup
        assert member.config.fetch_namesrv_addr_interval_ms == 77

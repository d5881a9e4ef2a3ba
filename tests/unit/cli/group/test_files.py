"""The properties files that `up --processes` writes: whole, for other commands, and kept."""

from pathlib import Path

import pytest

from turbopump.broker.config.config import load_config
from turbopump.cli.errors import UserError
from turbopump.cli.group.files import write_files
from turbopump.cluster import Cluster
from turbopump.controller.config import ControllerConfig
from turbopump.namesrv.config import NamesrvConfig
from turbopump.net.wire.java_properties import parse_properties


def cluster(data: Path, brokers: int = 2, controllers: int = 3, **more: str) -> Cluster:
    return Cluster(
        data,
        namesrv_port=9876,
        broker_port=10911,
        controller_port=9877,
        brokers=brokers,
        controllers=controllers,
        broker_properties=more,
    )


def test_a_group_with_controllers(tmp_path: Path) -> None:
    nodes = write_files(cluster(tmp_path, storePathRootDir="/data/b"), "127.0.0.1", 3)
    assert [(node.name, node.kind, node.address) for node in nodes] == [
        ("namesrv", "namesrv", "127.0.0.1:9876"),
        ("controller-n0", "controller", "127.0.0.1:9877"),
        ("controller-n1", "controller", "127.0.0.1:9878"),
        ("controller-n2", "controller", "127.0.0.1:9879"),
        ("b", "broker", "127.0.0.1:10911"),
        ("b-2", "broker", "127.0.0.1:10921"),
    ]
    namesrv = NamesrvConfig()
    assert namesrv.update_keys(parse_properties(nodes[0].path.read_text())) == []
    assert namesrv.listen_port == 9876
    for number, node in enumerate(nodes[1:4]):
        controller = ControllerConfig()
        assert controller.update_keys(parse_properties(node.path.read_text())) == []
        assert controller.members[f"n{number}"] == node.address
    broker, warnings = load_config(nodes[5].path.read_text(), str(nodes[5].path))
    assert warnings == []
    assert broker.listen_port == 10921
    assert broker.store.root == "/data/b-2"
    addresses = "127.0.0.1:9877", "127.0.0.1:9878", "127.0.0.1:9879"
    assert broker.replication.controller_addr == addresses


def test_replicas_that_act_for_their_master(tmp_path: Path) -> None:
    one = Cluster(tmp_path, replicas=2, acting_master=True, namesrv_port=9876, broker_port=10911)
    namesrv, *nodes = write_files(one, "127.0.0.1", 0)
    assert "supportActingMaster=true\n" in namesrv.path.read_text()
    for number, node in enumerate(nodes):
        config = load_config(node.path.read_text())[0].replication
        assert config.enable_slave_acting_master and config.total_replicas == 3
        assert load_config(node.path.read_text())[0].broker_id == number
    plain = Cluster(tmp_path, replicas=2, namesrv_port=9876, broker_port=10911)
    namesrv, *nodes = write_files(plain, "127.0.0.1", 0)
    texts = [node.path.read_text() for node in (namesrv, *nodes)]
    assert not any("ActingMaster=true" in text for text in texts), "nothing of it stays"


def test_an_operators_changes_stay_but_not_the_groups_own_keys(tmp_path: Path) -> None:
    """A master with a replica becomes a group with controllers: the pair's settings are removed."""
    pair = Cluster(tmp_path, namesrv_port=9876, broker_port=10911, replicas=1)
    master, replica = write_files(pair, "127.0.0.1", 0)[1:]
    assert (master.name, replica.name) == ("broker-a", "broker-a-replica-1")
    assert "brokerRole=SLAVE" in replica.path.read_text()
    with master.path.open("a") as file:
        file.write("fileReservedTime=5\nmaxMessageSize=1000\n")
    (tmp_path / "broker-a.properties").write_text("fileReservedTime=4\ndeleteWhen=5\n")
    group = cluster(tmp_path, maxMessageSize="2000", fileReservedTime="3", regionId="there")
    (again,) = [node for node in write_files(group, "127.0.0.1", 3) if node.name == "broker-a"]
    assert again.path == master.path
    broker, _ = load_config(again.path.read_text())
    assert broker.store.file_reserved_time_hours == 5, "the newer change, over the given value"
    assert broker.store.delete_when == "5", "the values given to the process of all nodes"
    assert broker.store.max_message_size == 1_000
    assert broker.region_id == "there"
    assert broker.replication.in_sync_replicas == 1
    assert broker.replication.enable_controller_mode


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "namesrv.properties").write_text("a=\\u00\n")
    with pytest.raises(UserError, match=r"namesrv\.properties"):
        write_files(cluster(tmp_path), "127.0.0.1", 3)

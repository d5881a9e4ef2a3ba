"""The controller commands: controllers' responses, printed as mqadmin prints them."""

import pytest

from turbopump.cli.admin.controller import (
    broker_numbers,
    config_lines,
    controller_addresses,
    elected_lines,
    metadata_lines,
    sync_state_lines,
)
from turbopump.cli.errors import UserError
from turbopump.net.client.admin.results import (
    ControllerMetadata,
    ElectedMaster,
    NodeProperties,
    ReplicaLine,
    SyncStateLine,
)

FIRST = ReplicaLine("broker-c", 1, "127.0.0.1:21950", True)
SECOND = ReplicaLine("broker-c", 2, "127.0.0.1:21955", False)


def test_a_sync_state_set() -> None:
    group = SyncStateLine("broker-c", 1, "127.0.0.1:21950", 3, 7, [FIRST], [SECOND])
    assert sync_state_lines(group) == [
        "",
        "#brokerName\tbroker-c",
        "#MasterBrokerId\t1",
        "#MasterAddr\t127.0.0.1:21950",
        "#MasterEpoch\t3",
        "#SyncStateSetEpoch\t7",
        "#SyncStateSetNums\t1",
        "",
        "InSyncReplica:\tReplicaIdentity{brokerName='broker-c', brokerId=1, "
        "brokerAddress='127.0.0.1:21950', alive=true}",
        "",
        "NotInSyncReplica:\tReplicaIdentity{brokerName='broker-c', brokerId=2, "
        "brokerAddress='127.0.0.1:21955', alive=false}",
    ]


def test_a_group_without_a_master() -> None:
    """Missing values are printed as Java prints them."""
    lines = sync_state_lines(SyncStateLine("broker-c", None, "", 4, 7, [], []))
    assert lines[2:4] == ["#MasterBrokerId\tnull", "#MasterAddr\tnull"]


def test_an_election() -> None:
    members = {1: "127.0.0.1:21950", 2: "127.0.0.1:21955"}
    elected = ElectedMaster("DefaultCluster", "broker-c", 1, members[1], 3, 5, members)
    assert elected_lines(elected) == [
        "",
        "#ClusterName\tDefaultCluster",
        "#BrokerName\tbroker-c",
        "#BrokerMasterAddr\t127.0.0.1:21950",
        "#MasterEpoch\t3",
        "#SyncStateSetEpoch\t5",
        "\t#Broker\t1\t127.0.0.1:21950",
        "\t#Broker\t2\t127.0.0.1:21955",
    ]
    assert elected.to_json()["members"] == {"1": "127.0.0.1:21950", "2": "127.0.0.1:21955"}


def test_a_quorum() -> None:
    peers = {"n0": "127.0.0.1:19890", "n1": "[::1]:19891"}
    metadata = ControllerMetadata("x:1", "group1", "n0", "127.0.0.1:19890", True, peers, 5)
    assert metadata_lines(metadata) == [
        "",
        "#ControllerGroup\tgroup1",
        "#ControllerLeaderId\tn0",
        "#ControllerLeaderAddress\t127.0.0.1:19890",
        "#Peer:\tn0:127.0.0.1:19890",
        "#Peer:\tn1:[::1]:19891",
    ]
    without = metadata_lines(ControllerMetadata("x:1", "group1", "", "", False, peers))
    assert without[2:4] == ["#ControllerLeaderId\tnull", "#ControllerLeaderAddress\tnull"]


def test_a_configuration() -> None:
    found = NodeProperties("127.0.0.1:19890", {"electMasterMaxRetryCount": "3", "empty": ""})
    assert config_lines(found) == [
        "============127.0.0.1:19890============",
        "electMasterMaxRetryCount                          =  3",
        "empty                                             =",
    ]


def test_broker_ids_to_clean() -> None:
    assert broker_numbers(None) == []
    assert broker_numbers("3;1; 2;1") == [1, 2, 3]
    for text in ("", ";", "1,2", "a", "-1", "1" * 19):
        with pytest.raises(UserError, match="1;2;3"):
            broker_numbers(text)


def test_controller_addresses() -> None:
    assert controller_addresses("a:1; b:2") == ["a:1", "b:2"]
    for text in ("", ";", "a", "a:0"):
        with pytest.raises(UserError, match=r"controller address|no address"):
            controller_addresses(text)

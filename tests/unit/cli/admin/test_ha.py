"""Brokers' responses to haStatus and getBrokerEpoch, printed as mqadmin prints them."""

import pytest

from turbopump.cli.admin.ha import epoch_lines, master_lines, replica_lines
from turbopump.cli.output import local_time
from turbopump.net.client.admin.parse import broker_epochs, ha_status
from turbopump.net.wire.bodies import BadBody

MASTER = (
    b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,'
    b'"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":['
    b'{"addr":"127.0.0.1:53046","diff":0,"inSync":true,"slaveAckOffset":393751,'
    b'"transferFromWhere":393751,"transferredByteInSecond":36},'
    b'{"addr":"127.0.0.1:53048","diff":393752,"inSync":false,"slaveAckOffset":-1,'
    b'"transferFromWhere":-1,"transferredByteInSecond":10240}],"inSyncSlaveNums":1,'
    b'"master":true,"masterCommitLogMaxOffset":393751}'
)
REPLICA = (
    b'{"haClientRuntimeInfo":{"lastReadTimestamp":1700000000123,"lastWriteTimestamp":0,'
    b'"masterAddr":"10.0.0.9:10912","masterFlushOffset":7,"maxOffset":500,'
    b'"transferredByteInSecond":1536},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,'
    b'"masterCommitLogMaxOffset":0}'
)
EPOCHS = (
    b'{"brokerId":1,"brokerName":"broker-c","clusterName":"DefaultCluster","epochList":'
    b'[{"endOffset":407727,"epoch":1,"startOffset":0},'
    b'{"endOffset":9223372036854775807,"epoch":2,"startOffset":407727}],"maxOffset":602849}'
)


def test_a_master_and_its_replicas() -> None:
    assert master_lines(ha_status("10.0.0.1:10911", MASTER)) == [
        "",
        "#MasterAddr\t10.0.0.1:10911",
        "#MasterCommitLogMaxOffset\t393751",
        "#SlaveNum\t2",
        "#InSyncSlaveNum\t1",
        "#SlaveAddr                        #SlaveAckOffset             #Diff "
        "#TransferSpeed(KB/s)          #Status #TransferFromWhere",
        "127.0.0.1:53046                   393751                          0 "
        "            0.04               OK           393751",
        "127.0.0.1:53048                   -1                         393752 "
        "           10.00      Fall Behind               -1",
    ]


def test_a_replica() -> None:
    assert replica_lines(ha_status("10.0.0.2:10911", REPLICA)) == [
        "",
        "#MasterAddr\t10.0.0.9:10912",
        "#CommitLogMaxOffset\t500",
        "#TransferSpeed(KB/s)\t1.50",
        f"#LastReadTime\t{local_time(1_700_000_000_123)}",
        "#LastWriteTime\t",
        "#MasterFlushOffset\t7",
    ]


def test_epochs_of_a_broker() -> None:
    """The last epoch ends at the log's end."""
    assert epoch_lines(broker_epochs("10.0.0.1:10911", EPOCHS)) == [
        "",
        "#clusterName\tDefaultCluster",
        "#brokerName\tbroker-c",
        "#brokerAddr\t10.0.0.1:10911",
        "#brokerId\t1",
        "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=407727}",
        "#Epoch: EpochEntry{epoch=2, startOffset=407727, endOffset=602849}",
    ]


def test_output_for_programs() -> None:
    status = ha_status("10.0.0.1:10911", MASTER).to_json()
    assert (status["is_master"], status["log_end"], status["in_sync_replicas"]) == (True, 393751, 1)
    assert status["replicas"][0] == {
        "address": "127.0.0.1:53046",
        "acked": 393751,
        "diff": 0,
        "bytes_per_second": 36,
        "in_sync": True,
        "next": 393751,
    }
    epochs = broker_epochs("a:1", EPOCHS).to_json()["epochs"]
    assert epochs[1] == {"epoch": 2, "start": 407727, "end": 602849}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"master":true,"haConnectionInfo":[1]}'])
def test_an_answer_that_is_none(body: bytes) -> None:
    with pytest.raises(BadBody):
        ha_status("a:1", body)

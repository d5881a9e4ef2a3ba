"""Admin requests on replication, from operators, peers and controllers: 906, 907, 908, 1007,
1008."""

from types import SimpleNamespace
from typing import Any

from turbopump.broker.ha.control.controller_protocol import GroupState
from turbopump.broker.replication import (
    FollowerStatus,
    LeaderStatus,
    ReplicaStatus,
    ReplicationStatus,
)
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha.replica import State
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.controller import NotifyBrokerRoleChangedRequest
from turbopump.net.wire.headers.routes import ExchangeHaInfo

NOBODY = (
    b'{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
    b'"transferredByteInSecond":0}'
)


class Steered:
    """Replication whose status the test sets."""

    def __init__(self, status: ReplicationStatus) -> None:
        self.now = status
        self.flushed: list[int] = []

    def status(self) -> ReplicationStatus:
        return self.now

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        self.flushed.append(log_offset)


def steer(admin: Any, log_end: int, **members: Any) -> Steered:
    """Give the broker a replication status with `log_end` as its log end."""
    admin.broker.ha = made = Steered(
        ReplicationStatus(LogOffset(log_end), LogOffset(log_end), **members)
    )
    return made


FOLLOWER = FollowerStatus("10.0.0.9:10912", State.TRANSFER, "", 1_700, 1_800, 36, LogOffset(7))


def test_a_master_without_followers(admin: Any) -> None:
    """The response equals that of RocketMQ 5.5.0 without replicas, except for the log's end."""
    admin.send("T")
    end = b"%d" % admin.broker.store.max_log_offset
    assert admin.ask(907).body == (
        b'{"haClientRuntimeInfo":' + NOBODY + b',"haConnectionInfo":[],"inSyncSlaveNums":0,'
        b'"master":true,"masterCommitLogMaxOffset":' + end + b"}"
    )


def test_a_master_with_a_replica(admin: Any) -> None:
    """The response equals that of RocketMQ 5.5.0 with one replica, byte for byte."""
    at = LogOffset(393_751)
    replica = ReplicaStatus("127.0.0.1:53046", 2, at, at, True, bytes_per_second=36)
    steer(admin, at, leader=LeaderStatus((replica,), frozenset({1, 2}), 3))
    assert admin.ask(907).body == (
        b'{"haClientRuntimeInfo":' + NOBODY + b',"haConnectionInfo":[{"addr":"127.0.0.1:53046",'
        b'"diff":0,"inSync":true,"slaveAckOffset":393751,"transferFromWhere":393751,'
        b'"transferredByteInSecond":36}],"inSyncSlaveNums":1,"master":true,'
        b'"masterCommitLogMaxOffset":393751}'
    )


def test_a_replica_behind(admin: Any) -> None:
    behind = ReplicaStatus("127.0.0.1:53046", 2, LogOffset(600), LogOffset(700), False)
    silent = ReplicaStatus("127.0.0.1:53047", None, LogOffset(-1), LogOffset(-1), False)
    steer(admin, 1_000, leader=LeaderStatus((behind, silent), frozenset({1})))
    shown = admin.json(907)
    assert shown["inSyncSlaveNums"] == 0
    assert [(each["diff"], each["inSync"]) for each in shown["haConnectionInfo"]] == [
        (400, False),
        (1_001, False),
    ]


def test_a_replica_tells_of_its_master(admin: Any) -> None:
    steer(admin, 500, follower=FOLLOWER)
    assert admin.ask(907).body == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":1700,"lastWriteTimestamp":1800,'
        b'"masterAddr":"10.0.0.9:10912","masterFlushOffset":7,"maxOffset":500,'
        b'"transferredByteInSecond":36},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,'
        b'"masterCommitLogMaxOffset":0}'
    )


def test_a_replica_takes_its_masters_flushed_offset(admin: Any) -> None:
    response = steer(admin, 500, follower=FOLLOWER)
    assert admin.ask(908, masterFlushOffset=450).code == 0
    assert admin.ask(908).code == 0
    assert admin.ask(908, masterFlushOffset="far").code == 1
    assert response.flushed == [450]


def test_a_master_does_not(admin: Any) -> None:
    assert admin.ask(908, masterFlushOffset=450).code == 0
    response = steer(admin, 500, leader=LeaderStatus())
    assert admin.ask(908, masterFlushOffset=450).code == 0
    assert response.flushed == []


def test_the_epochs_of_a_log(admin: Any) -> None:
    """The response equals that of RocketMQ 5.5.0 after an election, byte for byte."""
    steer(admin, 602_849, leader=LeaderStatus(), epochs=Epochs.from_pairs([(1, 0), (2, 407_727)]))
    assert admin.ask(1007).body == (
        b'{"brokerId":0,"brokerName":"broker-a","clusterName":"DefaultCluster","epochList":'
        b'[{"endOffset":407727,"epoch":1,"startOffset":0},'
        b'{"endOffset":9223372036854775807,"epoch":2,"startOffset":407727}],"maxOffset":602849}'
    )


def test_a_log_without_epochs(admin: Any) -> None:
    """The response equals RocketMQ's refusal outside of controller mode."""
    for _ in range(2):
        response = admin.ask(1007)
        assert (response.code, response.remark) == (1, "this request only for controllerMode")
        steer(admin, 500, follower=FOLLOWER)


class Heard:
    """A membership that records its calls."""

    def __init__(self, admin: Any) -> None:
        self.words: list[GroupState] = []
        self.reported: list[tuple[str, str, bool]] = []
        self.master_finder = SimpleNamespace(
            master_reported=lambda *what: self.reported.append(what)
        )
        admin.broker.membership = self

    def on_notice(self, word: GroupState) -> None:
        self.words.append(word)


def test_a_master_says_where_its_log_is_copied_from(admin: Any) -> None:
    steer(admin, 77, leader=LeaderStatus())
    admin.broker.ha_address = "10.0.0.9:10912"
    assert "masterHaAddress" not in admin.ask(906).fields, "it is not the master"
    admin.broker.role.become_master(SimpleNamespace(has_ended=False))
    fields = admin.ask(906).fields
    assert fields == {
        "masterHaAddress": "10.0.0.9:10912",
        "masterFlushOffset": str(admin.broker.store.max_log_offset),
        "masterAddress": admin.broker.address,
    }


def test_a_replica_is_told_where_by_its_master(admin: Any) -> None:
    heard = Heard(admin)
    header = ExchangeHaInfo("10.0.0.8:10912", 0, "10.0.0.8:10911")
    assert admin.ask(906, **write_header(header)).code == 0
    assert heard.reported == [("10.0.0.8:10911", "10.0.0.8:10912", True)]


def test_a_notice_of_the_controller(admin: Any) -> None:
    header = write_header(NotifyBrokerRoleChangedRequest("a:1", 4, 7, 2))
    body = SyncStateSet(frozenset({2, 3}), 7).encode()
    assert admin.ask(1008, body, **header).code == 1, "there are no controllers here"
    heard = Heard(admin)
    assert admin.ask(1008, body, **header).code == 0
    assert heard.words == [GroupState(4, 2, "a:1", frozenset({2, 3}), 7)]
    assert admin.ask(1008, b"{", **header).code == 1
    assert len(heard.words) == 1

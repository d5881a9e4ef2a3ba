"""The samples that a watch makes of responses, and the changes between them."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.unit.net.client.cluster import shared_with

from turbopump.net.client.admin.group_view import (
    BrokerView,
    ControllerView,
    GroupView,
    LagView,
    PopView,
    Sample,
    WaitingView,
    find_changes,
    leader_of,
    with_known_roles,
)
from turbopump.net.client.admin.group_watch import GroupWatch, read_group
from turbopump.net.client.admin.results import ReplicaLine, SyncStateLine
from turbopump.net.transport.errors import CallTimeout, ConnectError
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.route import BrokerData, ClusterInfo

ONE = ReplicaLine("b", 1, "h:1", True)
TWO = ReplicaLine("b", 2, "h:2", True)
THREE = ReplicaLine("b", 3, "h:3", False)
STATE = SyncStateLine("b", 1, "h:1", 4, 9, [ONE, TWO], [THREE])
MASTER_TABLE = {
    "commitLogMaxOffset": "1000",
    "haConfirmOffset": "900",
    "haEpoch": "4",
    "haSyncStateSet": "1,2",
    "haReplicaLag_2": "100 B, 40 ms",
    "putTps": "12.5 1 1",
    "getTransferredTps": "3.0 1 1",
}
REPLICA_TABLE = {
    "commitLogMaxOffset": "950",
    "haConfirmOffset": "880",
    "haEpoch": "4",
    "haState": "TRANSFER",
}
LAG = "7 messages, 1500 ms, 2 members"


def test_a_group_with_controllers() -> None:
    """Ids come from the controller, roles from each broker, and the lag from the master."""
    data = BrokerData("c", "b", {0: "h:1", 2: "h:2"})
    tables = [(ONE, MASTER_TABLE), (TWO, REPLICA_TABLE), (THREE, "h:3 cannot be reached")]
    group = read_group(data, STATE, tables)
    assert (group.master_id, group.epoch, group.set_epoch) == (1, 4, 9)
    assert group.sync_state_set == [1, 2]
    assert group.brokers == [
        BrokerView(1, "h:1", "master", True, True, 4, 1000, 900, None, None, 12.5, 3.0),
        BrokerView(2, "h:2", "slave", True, True, 4, 950, 880, 100, 40, state="TRANSFER"),
        BrokerView(3, "h:3", alive=False, in_sync=False, error="h:3 cannot be reached"),
    ]


def test_the_consumer_groups_furthest_behind() -> None:
    """Lags come from the master, largest first; malformed values are skipped."""
    table = MASTER_TABLE | {
        "consumerLag_T@g": LAG,
        "consumerLag_T@old": "9 messages, >=60000 ms, 0 members",
        "consumerLag_B@g": "9 messages, ? ms, 1 members",
        "consumerLag_T@odd": "many",
        "consumerLag_none": "1 messages, 1 ms, 1 members",
    }
    group = read_group(BrokerData("c", "b", {0: "h:1"}), None, [(ONE, table)])
    assert group.lags == [], "no master answers"
    zero = ReplicaLine("b", 0, "h:1", True)
    group = read_group(BrokerData("c", "b", {0: "h:1"}), None, [(zero, table)])
    assert group.lags == [
        LagView("g", "B", 9, None, False, 1),
        LagView("old", "T", 9, 60_000, False, 0),
        LagView("g", "T", 7, 1_500, True, 2),
    ]


def test_the_consumer_groups_that_pop() -> None:
    table = MASTER_TABLE | {
        "popReviveBehind": "1500",
        "consumerPop_few": "3.5 popped/s, 2.0 acked/s, 4 in flight",
        "consumerPop_many": "0.0 popped/s, 0.0 acked/s, 9000 in flight",
        "consumerPop_odd": "many",
    }
    zero = ReplicaLine("b", 0, "h:1", True)
    group = read_group(BrokerData("c", "b", {0: "h:1"}), None, [(zero, table)])
    assert group.pops == [
        PopView("many", 0.0, 0.0, 9000, 1500),
        PopView("few", 3.5, 2.0, 4, 1500),
    ]


def test_waiting_messages_at_the_master() -> None:
    """Timers and transactions of the master; values that are no numbers are skipped."""
    zero, table = ReplicaLine("b", 0, "h:1", True), dict(MASTER_TABLE)
    tables = [(zero, table)]
    assert read_group(BrokerData("c", "b", {0: "h:1"}), None, tables).waiting == WaitingView()
    table |= {
        "timerCongestNum": "7",
        "timerNextDue": "1700000000500",
        "timerBacklog": "5 s: 3, 60 s: 4, odd, 300 s: 0",
        "transactionsOpen": "2",
        "transactionsAsked": "5",
        "transactionsWithoutProducer": "many",
        "transactionsGivenUp": "1",
    }
    assert read_group(BrokerData("c", "b", {0: "h:1"}), None, tables).waiting == WaitingView(
        7, 1_700_000_000_500, {"5 s": 3, "60 s": 4, "300 s": 0}, 2, 5, 0, 1
    )


def test_a_replica_that_acts_for_its_master() -> None:
    """The acting replica reports consumer lags, and is no master; a waiting master reports the
    reason."""
    one, two = ReplicaLine("b", 1, "h:2", False), ReplicaLine("b", 2, "h:3", False)
    acts = REPLICA_TABLE | {"actingSince": "1700000000123", "consumerLag_T@g": LAG}
    tables = [(one, acts), (two, REPLICA_TABLE)]
    before = read_group(BrokerData("c", "b", {1: "h:2", 2: "h:3"}), None, tables)
    assert before.master_id is None
    assert [(each.role, each.acting_since_ms) for each in before.brokers] == [
        ("acting", 1_700_000_000_123),
        ("slave", None),
    ]
    assert before.lags == [LagView("g", "T", 7, 1_500, True, 2)]
    assert all(each.lag is None for each in before.brokers), "there is no log to lag after"
    after = read_group(BrokerData("c", "b", {1: "h:2"}), None, [(one, REPLICA_TABLE)])
    texts = [
        each.text for each in find_changes(Sample(1, groups=[before]), Sample(2, groups=[after]))
    ]
    assert texts == ["b 1: now slave (was acting)", "b 2: gone"]
    zero = ReplicaLine("b", 0, "h:1", False)
    waits = {"masterWaits": "replica 1 does not follow"}
    group = read_group(BrokerData("c", "b", {0: "h:1"}), None, [(zero, waits)])
    assert group.brokers[0].state == "does not serve yet: replica 1 does not follow"


def test_forwarded_messages_and_the_reason_of_the_rest() -> None:
    one = ReplicaLine("b", 1, "h:2", False)
    tables = {
        "haState": "READY",
        "actingSince": "1700000000123",
        "escapedTo_m": "12 messages, last at 1700000000500",
        "escapedTo_n": "odd",
        "escapeWaits": "m at h:9, for topic T: no answer",
    }
    group = read_group(BrokerData("c", "b", {1: "h:2"}), None, [(one, tables)])
    state = group.brokers[0].state
    assert state.startswith("READY escaped: 12 to m cannot send what is due: m at h:9, for")
    del tables["actingSince"]
    group = read_group(BrokerData("c", "b", {1: "h:2"}), None, [(one, tables)])
    assert group.brokers[0].state == "READY"


def test_a_group_without_controllers() -> None:
    """Ids come from the name server; the set is the master's own."""
    data = BrokerData("c", "b", {0: "h:1", 1: "h:2"})
    zero, one = ReplicaLine("b", 0, "h:1", False), ReplicaLine("b", 1, "h:2", False)
    group = read_group(data, None, [(zero, MASTER_TABLE), (one, REPLICA_TABLE)])
    assert (group.master_id, group.epoch, group.set_epoch) == (0, None, None)
    assert group.sync_state_set == [1, 2]
    assert [(each.role, each.alive, each.in_sync) for each in group.brokers] == [
        ("master", None, None),
        ("slave", None, None),
    ]
    # The master has no replica with that id: the ends of both logs are compared.
    assert (group.brokers[1].lag, group.brokers[1].lag_ms) == (50, None)


def test_brokers_in_trouble() -> None:
    """A master that may not acknowledge, a replica that cannot follow, a broker without a role
    yet."""
    tables = [
        (ONE, {**MASTER_TABLE, "haLease": "false", "haMembership": "MEMBER"}),
        (
            TWO,
            {
                **REPLICA_TABLE,
                "haState": "READY",
                "haReason": "no master",
                "haLease": "false",
                "haMembership": "MEMBER",
            },
        ),
        (THREE, {"haConfirmOffset": "0", "haMembership": "JOINING: not registered yet"}),
    ]
    group = read_group(BrokerData("c", "b"), STATE, tables)
    assert [(each.role, each.state) for each in group.brokers] == [
        ("master", "no lease: it acknowledges nothing"),
        ("slave", "READY no master"),
        ("", "JOINING: not registered yet"),
    ]


def test_a_store_that_takes_no_messages() -> None:
    tables = [
        (ONE, {**MASTER_TABLE, "storeUnfit": "the disk is too full"}),
        (TWO, {**REPLICA_TABLE, "storeUnfit": "input/output error"}),
    ]
    group = read_group(BrokerData("c", "b"), STATE, tables)
    assert [each.state for each in group.brokers] == [
        "takes no messages: the disk is too full",
        "TRANSFER takes no messages: input/output error",
    ]


def test_a_store_whose_disk_is_slow() -> None:
    tables = [(ONE, {**MASTER_TABLE, "storeSlow": "true"}), (TWO, REPLICA_TABLE)]
    group = read_group(BrokerData("c", "b"), STATE, tables)
    assert [each.state for each in group.brokers] == ["its disk is slow", "TRANSFER"]


def test_brokers_of_rocketmq() -> None:
    """RocketMQ's brokers report neither role nor confirm offset: the role comes from the
    controller."""
    table = {"commitLogMaxOffset": "1000", "haEpoch": "4"}
    tables = [(ONE, table), (TWO, {"commitLogMaxOffset": "600"}), (THREE, {})]
    group = read_group(BrokerData("c", "b"), STATE, tables)
    assert [(each.role, each.epoch, each.lag) for each in group.brokers] == [
        ("master", 4, None),
        ("slave", None, 400),
        ("slave", None, None),
    ]


SAMPLE = Sample(
    1_000,
    [ControllerView("n0", "h:90", True, "n0", 5), ControllerView("n1", "h:91", False, "n0", 5)],
    [
        read_group(
            BrokerData("c", "b"),
            STATE,
            [(ONE, MASTER_TABLE), (TWO, REPLICA_TABLE), (THREE, "timed out")],
        )
    ],
)


def after(**members: Any) -> Sample:
    return replace(SAMPLE, at_ms=2_000, **members)


def texts(sample: Sample, before: Sample = SAMPLE) -> list[tuple[str, str]]:
    found = find_changes(before, sample)
    assert all(change.at_ms == 2_000 for change in found)
    return [(change.kind, change.text) for change in found]


def test_nothing_changed() -> None:
    assert texts(after()) == []
    busy = replace(SAMPLE.groups[0].brokers[0], log_end=2000, confirm=2000, in_tps=9.0)
    group = replace(SAMPLE.groups[0], brokers=[busy, *SAMPLE.groups[0].brokers[1:]])
    assert texts(after(groups=[group])) == []


def test_an_election_and_the_broker_that_takes_the_role() -> None:
    group = SAMPLE.groups[0]
    one, two, three = group.brokers
    elected = replace(group, master_id=2, epoch=5, set_epoch=10, sync_state_set=[2])
    gone = replace(one, role="", error="refused")
    assert texts(after(groups=[replace(elected, brokers=[gone, two, three])])) == [
        ("election", "b: 2 is master in epoch 5 (was 1)"),
        ("set", "b: SyncStateSet {2} (was {1,2})"),
        ("answer", "b 1: refused"),
    ]
    took = [gone, replace(two, role="master"), replace(three, error="")]
    before = after(groups=[replace(elected, brokers=[gone, two, three])])
    assert texts(after(groups=[replace(elected, brokers=took)]), before) == [
        ("role", "b 2: now master (was slave)"),
        ("answer", "b 3: answers again"),
    ]


def test_a_role_that_changes_while_its_broker_does_not_answer_is_told() -> None:
    group = SAMPLE.groups[0]
    one, two, three = group.brokers
    gone, silent = (replace(each, role="", error="timed out") for each in (one, two))
    between = with_known_roles(
        SAMPLE, after(groups=[replace(group, brokers=[gone, silent, three])])
    )
    assert [each.role for each in between.groups[0].brokers] == ["master", "slave", three.role]
    took = [replace(one, role="slave"), replace(two, role="master"), three]
    assert texts(after(groups=[replace(group, brokers=took)]), between) == [
        ("answer", "b 1: answers again"),
        ("role", "b 1: now slave (was master)"),
        ("answer", "b 2: answers again"),
        ("role", "b 2: now master (was slave)"),
    ]
    assert with_known_roles(None, SAMPLE) == SAMPLE


def test_a_failure_for_another_reason_is_reported() -> None:
    group, (n0, n1) = SAMPLE.groups[0], SAMPLE.controllers
    one, two, three = group.brokers
    closed, dead = replace(n1, error="h:91 closed"), replace(n1, error="h:91 cannot be reached")
    before = after(
        controllers=[n0, closed],
        groups=[
            replace(group, brokers=[replace(one, error="h:1 closed"), two, three]),
        ],
    )
    assert texts(before, before) == []
    assert texts(
        after(
            controllers=[n0, dead],
            groups=[
                replace(group, brokers=[replace(one, error="h:1 cannot be reached"), two, three]),
            ],
        ),
        before,
    ) == [
        ("answer", "controller n1: h:91 cannot be reached"),
        ("answer", "b 1: h:1 cannot be reached"),
    ]


def test_the_same_master_in_another_epoch() -> None:
    group = replace(SAMPLE.groups[0], epoch=6)
    assert texts(after(groups=[group])) == [("election", "b: 1 is master in epoch 6 (was 1)")]
    nobody = replace(SAMPLE.groups[0], epoch=5, master_id=None)
    assert texts(after(groups=[nobody])) == [("election", "b: no master in epoch 5 (was 1)")]


def test_controllers_change_their_leader() -> None:
    n0, n1 = SAMPLE.controllers
    dead = replace(n0, is_leader=False, error="h:90 cannot be reached")
    assert texts(after(controllers=[dead, n1])) == [
        ("leader", "controllers: no leader (was n0)"),
        ("answer", "controller n0: h:90 cannot be reached"),
    ]
    leading = replace(n1, is_leader=True, leader_id="n1", term=6)
    assert texts(after(controllers=[dead, leading]))[0] == (
        "leader",
        "controllers: n1 leads in term 6 (was n0)",
    )
    both = after(controllers=[n0, leading])
    assert leader_of(both.controllers) is leading, "a deposed leader has a lower term"


def test_brokers_come_and_go() -> None:
    group = SAMPLE.groups[0]
    four = BrokerView(4, "h:4", "slave")
    assert texts(after(groups=[replace(group, brokers=[*group.brokers[1:], four])])) == [
        ("answer", "b 4: new, at h:4"),
        ("answer", "b 1: gone"),
    ]
    other = GroupView("c", "x", 0, None, None, [], [])
    assert texts(after(groups=[group, other])) == [("answer", "x: a new group")]


def test_no_name_server_answered() -> None:
    silent = replace(SAMPLE.groups[0].brokers[0], error="timed out")
    group = replace(SAMPLE.groups[0], brokers=[silent])
    dead = ControllerView("n0", "h:90", error="timed out")
    assert Sample(1, errors=["name server: timed out"]).nobody_answered
    assert Sample(1, [dead], [group], ["timed out"]).nobody_answered
    assert not Sample(1, SAMPLE.controllers, [group], ["timed out"]).nobody_answered
    assert not Sample(1).nobody_answered, "a cluster without brokers"


INFO = ClusterInfo({"b": BrokerData("c", "b", {0: "h:1", 2: "h:2"})}, {"c": ["b"]})
REPLICAS = (
    b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"alive":true,"brokerAddress":"h:1",'
    b'"brokerId":1,"brokerName":"b"}],"masterAddress":"h:1","masterBrokerId":1,"masterEpoch":4,'
    b'"notInSyncReplicas":[{"alive":true,"brokerAddress":"h:2","brokerId":2,"brokerName":"b"}],'
    b'"syncStateSetEpoch":9}}}'
)


class Nodes:
    """A name server, two brokers and two controllers; those in `silent` do not answer."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.leader = "n0"
        self.peers = "n0:h:90;n1:h:91;"
        self.steady = 50

    def now_ms(self) -> int:
        return 1_000

    def steady_ms(self) -> int:
        return self.steady

    async def ask_name_server(self, code: int, header: Any = None) -> Command:
        assert code == RequestCode.GET_BROKER_CLUSTER_INFO
        if "namesrv" in self.silent:
            raise ConnectError("namesrv cannot be reached")
        return Command(0, body=INFO.encode())

    async def ask(self, address: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        if address in self.silent:
            raise CallTimeout(f"{address} did not answer")
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = MASTER_TABLE if address == "h:1" else REPLICA_TABLE
            return Command(0, body=encode_json({"table": table}))
        if code == RequestCode.GET_BROKER_CONFIG:
            return Command(0, body=b"controllerAddr=h:90;h:91\n")
        if code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            assert address == {"n0": "h:90", "n1": "h:91"}[self.leader]
            return Command(0, body=REPLICAS)
        assert code == RequestCode.CONTROLLER_GET_METADATA_INFO
        leading = {"n0": "h:90", "n1": "h:91"}[self.leader]
        fields = {
            "group": "g",
            "isLeader": str(address == leading).lower(),
            "peers": self.peers,
            "controllerLeaderId": self.leader,
            "controllerLeaderAddress": leading,
            "term": "3",
        }
        return Command(0, fields=fields)


def test_a_watch_asks_all_brokers_and_keeps_known_answers() -> None:
    nodes = Nodes()
    watch = GroupWatch(shared_with(nodes))

    def sample() -> Sample:
        return asyncio.run(watch.sample())

    # The controllers are found in a broker's configuration.
    first = sample()
    assert [each.id for each in first.controllers] == ["n0", "n1"]
    leader = leader_of(first.controllers)
    assert leader is not None and (leader.id, leader.term) == ("n0", 3)
    assert [each.broker_id for each in first.groups[0].brokers] == [1, 2]
    assert first.errors == []

    # Without name server and leader the last picture is shown, with the brokers' present state.
    nodes.silent = {"namesrv", "h:90", "h:1"}
    second = sample()
    assert second.groups[0].master_id == 1
    assert [bool(each.error) for each in second.groups[0].brokers] == [True, False]
    assert second.errors == [
        "name server: namesrv cannot be reached",
        "controllers: no leader answers",
    ]
    assert not second.nobody_answered

    nodes.silent, nodes.leader = {"h:90"}, "n1"
    third = sample()
    leader = leader_of(third.controllers)
    assert leader is not None and leader.id == "n1"
    assert third.errors == []

    nodes.silent = {"namesrv", "h:90", "h:91", "h:1", "h:2"}
    assert sample().nobody_answered
    nodes.silent = set()
    assert sample().errors == []


def test_unconfirmed_members_grow_old() -> None:
    """After all nodes died, their last reports are shown with their age."""
    nodes = Nodes()
    watch = GroupWatch(shared_with(nodes))

    def ages() -> tuple[int, list[int | None], list[int | None]]:
        sample = asyncio.run(watch.sample())
        (group,) = sample.groups
        brokers = [each.age_ms for each in group.brokers]
        return group.age_ms, [each.age_ms for each in sample.controllers], brokers

    nodes.silent = {"h:2", "h:91"}
    assert ages() == (0, [0, None], [0, None]), "two never answered"
    nodes.silent, nodes.steady = set(), 1_050
    assert ages() == (0, [0, 0], [0, 0])
    nodes.silent, nodes.steady = {"namesrv", "h:90", "h:91", "h:1", "h:2"}, 3_050
    assert ages() == (2_000, [2_000, 2_000], [2_000, 2_000])
    assert [each.id for each in asyncio.run(watch.sample()).controllers] == ["n0", "n1"]
    nodes.silent, nodes.steady = {"h:90"}, 4_050
    assert ages() == (3_000, [3_000, 0], [0, 0]), "the leader alone knows the SyncStateSet"


def test_a_group_without_controllers_is_as_old_as_the_name_servers_words() -> None:
    nodes = Nodes()
    nodes.silent = {"h:90", "h:91"}
    watch = GroupWatch(shared_with(nodes))
    assert asyncio.run(watch.sample()).groups[0].age_ms == 0
    nodes.silent.add("namesrv")
    nodes.steady += 700
    assert asyncio.run(watch.sample()).groups[0].age_ms == 700


def test_controllers_that_all_moved_are_found_through_those_given() -> None:
    nodes = Nodes()
    watch = GroupWatch(shared_with(nodes), ["h:91"])
    assert [each.id for each in asyncio.run(watch.sample()).controllers] == ["n0", "n1"]
    nodes.silent = {"h:90", "h:91"}
    assert all(each.error for each in asyncio.run(watch.sample()).controllers)
    nodes.silent, nodes.peers = {"h:90"}, "n2:h:92;n3:h:91;"
    found = asyncio.run(watch.sample()).controllers
    assert [(each.id, each.address) for each in found] == [("n2", "h:92"), ("n3", "h:91")]


def test_one_group_only() -> None:
    nodes = Nodes()
    watch = GroupWatch(shared_with(nodes), ["h:91"], broker_name="other")
    found = asyncio.run(watch.sample())
    assert found.groups == []
    assert [each.address for each in found.controllers] == ["h:90", "h:91"]

"""Controllers with less knowledge than their brokers: restored from an older copy, or ordered to
remove live brokers."""

import pytest
from tests.unit.controller.groups import CLUSTER, NAME, Leader, Node, set_up

from turbopump.controller.elections import EPOCH_JUMP_MAX
from turbopump.controller.liveness import (
    FRESH_SHARE,
    HEARTBEAT_TIMEOUT_MS,
    MASTER,
    MEMBER,
    OUTSIDE,
    TELL_SHARE,
)
from turbopump.controller.state import GroupTables
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

TELL_MS = int(HEARTBEAT_TIMEOUT_MS * TELL_SHARE)
SILENT_MS = int(HEARTBEAT_TIMEOUT_MS * FRESH_SHARE) + 1000


def tell(leader: Leader, broker_id: int, epoch: int, end: int, standing: int | None) -> None:
    leader.live.tell(broker_id, epoch, end, leased=True)
    leader.live.logs[broker_id].standing = standing


def restored() -> Leader:
    """The restored copy has 1 as the master in epoch 1, with all in sync. By now 3 is the master in
    epoch 4, and 1 is outside of the set."""
    leader = set_up()
    tell(leader, 1, 1, 5000, OUTSIDE)
    tell(leader, 2, 4, 900, MEMBER)
    tell(leader, 3, 4, 1000, MASTER)
    return leader


class TestAnOlderCopy:
    def test_the_master_of_the_later_epoch_begins_one_beyond_it(self) -> None:
        """Otherwise the copy's master would stay, and no lease would be granted."""
        leader = restored()
        assert leader.look() is not None
        assert (leader.group.master_id, leader.group.master_epoch) == (3, 5)
        assert leader.group.members == {3}
        assert leader.group.eligible == frozenset(), "who was in sync then need not have all now"
        assert leader.look() is None, "once"

    def test_the_copys_own_master_needs_a_later_epoch_too(self) -> None:
        leader = restored()
        tell(leader, 1, 4, 1000, MASTER)
        tell(leader, 3, 4, 900, MEMBER)
        decision = leader.elect(2)
        assert decision.code == 0
        assert (leader.group.master_id, leader.group.master_epoch) == (1, 5)

    def test_no_member_of_the_copys_set_is_elected_before_the_others_are_here(self) -> None:
        """The master of epoch 4 is absent: 1 is in the copy's set, and lacks many bytes."""
        leader = restored()
        leader.live.ids = {1, 2}
        assert leader.look() is None
        assert leader.group.master_epoch == 1, "no epoch is raised for that"
        assert leader.elect(1).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        leader.register(1)
        assert leader.group.master_epoch == 1
        leader.live.ids = {1, 2, 3}
        assert leader.look() is not None
        assert leader.group.master_id == 3

    def test_without_the_master_the_most_of_those_that_may_have_all(self) -> None:
        leader = restored()
        tell(leader, 3, 4, 900, None)  # the broker was restarted
        leader.look()
        assert (leader.group.master_id, leader.group.master_epoch) == (2, 5)

    def test_an_administrator_decides_where_the_master_is_gone(self) -> None:
        leader = restored()
        leader.live.ids = {1, 2}
        assert leader.elect(2, designate=True).code == 0
        assert (leader.group.master_id, leader.group.master_epoch) == (2, 5)

    @pytest.mark.parametrize("epoch", [1, EPOCH_JUMP_MAX + 2])
    def test_made_up_epochs_and_those_of_today_change_nothing(self, epoch: int) -> None:
        leader = restored()
        for broker_id in (1, 2, 3):
            tell(leader, broker_id, epoch, 100, MEMBER)
        assert leader.look() is None
        assert (leader.group.master_id, leader.group.master_epoch) == (1, 1)

    def test_a_heartbeat_is_enough(self) -> None:
        """No broker has to die for it: otherwise a healthy group would accept no writes."""
        node = Node()
        copy = set_up()
        node.core.restore(copy.tables.snapshot())
        node.lead()
        for broker_id, epoch, standing in ((1, 1, OUTSIDE), (2, 4, MEMBER), (3, 4, MASTER)):
            node.beat(broker_id, epoch=epoch, max_offset=100, leased=True, standing=standing)
        group = node.core.tables.groups[NAME]
        assert (group.master_id, group.master_epoch) == (3, 5)

    def test_an_older_master_does_not_overtake_one_that_is_silent(self) -> None:
        """Broker 3 led in epoch 6 and is silent for some seconds; 2 led in epoch 4, and reports
        it."""
        leader = restored()
        tell(leader, 3, 6, 1000, MASTER)
        tell(leader, 2, 4, 900, MASTER)
        leader.live.ids, leader.live.stale = {1, 2}, {3}
        assert leader.look() is None
        assert leader.elect(2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        leader.live.ids = {1, 2, 3}
        leader.look()
        assert (leader.group.master_id, leader.group.master_epoch) == (3, 7)

    def test_a_later_set_of_the_same_epoch(self) -> None:
        """All brokers are in the set of the copy; since then the master, 1, is its only member."""
        leader = set_up()
        tell(leader, 1, 1, 5000, MASTER)
        tell(leader, 2, 1, 900, OUTSIDE)
        tell(leader, 3, 1, 900, OUTSIDE)
        leader.live.sets[1] = leader.group.set_epoch
        assert leader.look() is None
        leader.live.sets[1] += 2
        leader.live.ids, leader.live.stale = {2, 3}, {1}
        assert leader.look() is None
        assert leader.elect(2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        leader.live.ids = {1, 2, 3}
        assert leader.look() is not None
        assert (leader.group.master_id, leader.group.master_epoch) == (1, 2)
        assert leader.look() is None, "once"

    def test_nor_one_that_died_meanwhile(self) -> None:
        node = copied()
        node.beat(1, epoch=1, leased=True, standing=OUTSIDE)
        node.beat(3, epoch=6, leased=True, standing=None)
        node.close(3)
        node.beat(2, epoch=4, leased=True, standing=MASTER)
        node.tick(1000)
        assert master_of(node) == (1, 1)
        node.beat(3, epoch=6, leased=True, standing=None)
        assert master_of(node) == (3, 7), "all are here: the latest log"

    def test_an_old_master_has_no_lease_while_one_that_knows_more_is_away(self) -> None:
        node = copied()
        node.beat(2, epoch=4, leased=True, standing=MEMBER)
        node.beat(3, epoch=4, leased=True, standing=None)
        node.close(3)
        assert node.beat(1, epoch=1, leased=True, standing=MASTER).lease_ms is None


class TestAColdTable:
    """A controller that just started leads: it learns the brokers' states by their next
    heartbeats."""

    def test_an_older_master_is_not_elected_before_the_others_were_heard(self) -> None:
        node = copied()
        node.beat(2, epoch=4, leased=True, standing=MASTER)
        node.beat(1, epoch=1, leased=True, standing=OUTSIDE)
        assert master_of(node) == (1, 1)
        assert node.elect(2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        node.beat(3, epoch=6, leased=True, standing=MASTER)
        assert master_of(node) == (3, 7)

    def test_nor_has_it_a_lease(self) -> None:
        node = copied()
        assert node.beat(1, leased=True, standing=MASTER).lease_ms is None
        node.beat(2, leased=True, standing=MEMBER)
        node.beat(3, leased=True, standing=MEMBER)
        assert node.beat(1, leased=True, standing=MASTER).lease_ms is not None

    def test_a_dead_replica_is_waited_for_a_bounded_time(self) -> None:
        node = copied()
        node.beat(2, leased=True, standing=MEMBER)
        assert node.beat(1, leased=True, standing=MASTER).lease_ms is None
        node.tick(TELL_MS)
        assert node.beat(1, leased=True, standing=MASTER).lease_ms is not None

    def test_a_master_that_registers_waits_for_the_others_too(self) -> None:
        node = copied()
        assert node.register(1).code == ResponseCode.SYSTEM_BUSY
        assert node.register(2).code == 0
        for broker_id in (2, 3):
            node.beat(broker_id, leased=True, standing=MEMBER)
        assert node.register(1).code == 0
        assert master_of(node) == (1, 2)

    def test_heartbeats_before_the_lead_count(self) -> None:
        """A warm table does not wait, although a broker is dead."""
        node = copied(leads=False)
        for broker_id in (1, 2, 3):
            node.beat(broker_id, leased=True, standing=MEMBER)
        for _ in range(12):
            node.tick(1000)
            node.beat(1, leased=True, standing=MASTER)
            node.beat(2, leased=True, standing=MEMBER)
        node.lead()
        assert node.beat(1, leased=True, standing=MASTER).lease_ms is not None


class TestEmptied:
    """All controllers lost their state: brokers return one after the other."""

    def test_the_first_to_come_waits_for_the_others(self) -> None:
        node = Node()
        node.lead()
        come(node, 1, epoch=4, standing=MASTER)
        assert node.elect(1).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        node.tick(TELL_MS)
        node.beat(1, epoch=4, leased=True, standing=MASTER)
        assert node.elect(1).code == 0
        assert master_of(node) == (1, 5)

    def test_one_that_runs_and_knows_more_is_waited_for(self) -> None:
        node = Node()
        node.lead()
        node.tick()
        node.tick(TELL_MS)
        stray(node, 7, epoch=6, standing=MASTER)
        come(node, 1, epoch=4, standing=MASTER)
        assert node.elect(1).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        come(node, 2, epoch=6, standing=MASTER, address="a:7")
        assert node.elect(1).code == 0
        assert master_of(node) == (2, 7)

    def test_but_not_for_ever(self) -> None:
        node = Node()
        node.lead()
        node.tick()
        node.tick(TELL_MS)
        stray(node, 7, epoch=6, standing=MASTER)
        come(node, 1, epoch=4, standing=MASTER)
        node.tick(SILENT_MS)
        node.beat(1, epoch=4, leased=True, standing=MASTER)
        assert node.elect(1).code == 0

    def test_a_group_without_a_log_waits_for_no_replica(self) -> None:
        node = Node()
        node.lead()
        node.join(1)
        assert node.elect(1).code == 0

    def test_an_id_that_is_anothers_by_now(self) -> None:
        """The id's old broker learns that it is unknown, and is refused with its old check code."""
        node = Node()
        node.lead()
        come(node, 1, epoch=4, standing=MASTER)
        response = stray(node, 1, epoch=6, standing=MASTER, address="old:1")
        assert response.unknown is True and response.lease_ms is None
        assert node.core.heartbeats.last_epochs((CLUSTER, NAME, 1))[0] == 4
        refused = node.register(1, register_check_code="old:1;3")
        assert refused.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert node.core.tables.groups[NAME].replicas[1].address == "a:1"
        assert node.register(1, register_check_code="a:1;7").code == 0


def copied(*, leads: bool = True) -> Node:
    """A controller that starts with the copy of `restored`."""
    node = Node()
    node.core.restore(set_up().tables.snapshot())
    if leads:
        node.lead()
    return node


def master_of(node: Node) -> tuple[int | None, int]:
    group = node.core.tables.groups[NAME]
    return group.master_id, group.master_epoch


def stray(
    node: Node, broker_id: int, epoch: int, standing: int, address: str | None = None
) -> headers.BrokerHeartbeatResponse:
    """A heartbeat of a broker that is not registered under that id."""
    header = BrokerHeartbeatRequest(
        CLUSTER,
        address or f"a:{broker_id}",
        NAME,
        broker_id,
        epoch,
        100,
        100,
        leased=True,
        standing=standing,
    )
    response: Command = node.ask(RequestCode.BROKER_HEARTBEAT, header, connection=90).value
    return read_header(headers.BrokerHeartbeatResponse, response.fields)


def come(node: Node, broker_id: int, epoch: int, standing: int, address: str | None = None) -> None:
    """A broker with a log that gets a new id."""
    address = address or f"a:{broker_id}"
    apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, broker_id, f"{address};7")
    assert node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply).value.code == 0
    header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, broker_id, address)
    registered = node.ask(RequestCode.CONTROLLER_REGISTER_BROKER, header, connection=broker_id)
    assert registered.value.code == 0
    stray(node, broker_id, epoch, standing, address)


class TestForgotten:
    def test_a_heartbeat_of_an_unknown_id_says_so(self) -> None:
        node = Node()
        node.core.restore(set_up().tables.snapshot())
        assert node.beat(9).unknown is None, "who does not lead does not know"
        node.lead()
        assert node.beat(1).unknown is None
        assert node.beat(9).unknown is True
        node.core.restore(GroupTables().snapshot())
        assert node.beat(1).unknown is True

    def test_a_broker_outside_of_the_set_is_not_the_first_for_coming_first(self) -> None:
        """cleanBrokerMetadata -l removes live brokers, which return with other ids."""
        leader = set_up()
        assert leader.clean(living=True).code == 0
        leader.live.ids, leader.live.logs = {4, 5, 6}, {}
        tell(leader, 4, 1, 700, OUTSIDE)
        leader.join(4)
        assert leader.elect(4).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        tell(leader, 5, 1, 900, MEMBER)
        leader.join(5)
        assert leader.elect(4).code == 0
        assert leader.group.master_id == 5

    def test_an_administrator_may_name_one_that_was_outside(self) -> None:
        leader = set_up()
        leader.clean(living=True)
        leader.live.ids, leader.live.logs = {4}, {}
        tell(leader, 4, 1, 700, OUTSIDE)
        leader.join(4)
        assert leader.elect(4, designate=True).code == 0
        assert leader.group.master_id == 4

    def test_all_members_forgotten_and_back(self) -> None:
        """A replica outside of the set was not removed, so the group always exists."""
        leader = set_up()
        leader.alter({1, 2})
        leader.clean("1;2", living=True)
        tell(leader, 3, 1, 900, OUTSIDE)
        leader.live.ids = {3}
        assert leader.look() is None
        assert leader.elect(3).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        leader.live.ids = {3, 4}
        tell(leader, 4, 1, 1000, MASTER)
        leader.join(4)
        leader.look()
        assert leader.group.master_id == 4

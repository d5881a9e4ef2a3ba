"""Elections and the SyncStateSet: vectors C1-C11 of controller.md 3.6, and safer rules of
Turbopump."""

import pytest
from tests.unit.controller.groups import NAME, Leader, set_up

from turbopump.controller import elections, registration
from turbopump.controller.elections import EPOCH_JUMP_MAX
from turbopump.controller.events import ElectMaster
from turbopump.engine.types import StoreHealth
from turbopump.net.wire.codes import ResponseCode as Code
from turbopump.net.wire.controller import BrokerReplicasInfo, ElectMasterBody, SyncStateSet


def in_sync(leader: Leader) -> tuple[list[int], list[int]]:
    decision = registration.sync_state_data(leader.tables, [NAME], leader.live)
    info = BrokerReplicasInfo.decode(decision.body).groups[NAME]
    return [one.broker_id for one in info.in_sync], [one.broker_id for one in info.not_in_sync]


def test_c1_three_in_sync() -> None:
    leader = set_up()
    assert (leader.group.master_id, leader.epochs) == (1, (1, 2))
    assert in_sync(leader) == ([1, 2, 3], [])


def test_c2_a_broker_that_registers_after_the_election_receives_the_master() -> None:
    leader = Leader()
    leader.live.ids = {1, 2, 3}
    leader.join(1)
    leader.join(2)
    leader.elect(1)
    decision = leader.join(3)
    assert decision.header.master_broker_id == 1
    assert SyncStateSet.decode(decision.body) == SyncStateSet(frozenset({1}), 1)
    assert in_sync(leader) == ([1], [2, 3])
    assert leader.epochs == (1, 1)


def test_c3_the_only_one_that_lives_asks() -> None:
    leader = set_up()
    leader.live.ids = {3}
    assert leader.elect(3).code == Code.SUCCESS
    assert (leader.group.master_id, leader.epochs, leader.group.members) == (3, (2, 3), {3})


def test_c4_the_master_lives() -> None:
    leader = set_up()
    decision = leader.elect()
    assert decision.code == Code.CONTROLLER_MASTER_STILL_EXIST
    assert (decision.header.master_broker_id, decision.header.master_epoch) == (1, 1)
    assert ElectMasterBody.decode(decision.body) == ElectMasterBody(frozenset({1, 2, 3}))
    assert not decision.events


@pytest.mark.parametrize(
    ("second", "third", "winner"),
    [
        ((1, 2), (0, 3), 2),  # C5: the later epoch
        ((1, 2), (1, 3), 3),  # C6: the longer log
        ((1, 3, 2), (1, 3, 1), 3),  # C7: the broker with the higher configured priority
        ((1, 3), (1, 3 + (1 << 33)), 3),  # RocketMQ casts the difference to an int
        ((1, 3), (1, 3), 2),
    ],
)
def test_c5_to_c7_the_best_log(
    second: tuple[int, ...], third: tuple[int, ...], winner: int
) -> None:
    leader = set_up()
    leader.live.ids = {2, 3}
    leader.live.tell(2, *second)
    leader.live.tell(3, *third)
    won = leader.elect()
    assert won.code == Code.SUCCESS and leader.group.master_epoch == 2
    assert (won.header.master_broker_id, won.header.master_address) == (winner, f"a:{winner}")
    body = ElectMasterBody.decode(won.body)
    assert body.members == {winner}
    assert body.group is not None and body.group.addresses == {1: "a:1", 2: "a:2", 3: "a:3"}


def test_c8_elections_without_reported_logs_and_by_administrators() -> None:
    leader = set_up()
    leader.live.ids = {2, 3}
    assert leader.elect().code == Code.SUCCESS
    master = leader.group.master_id
    assert master in (2, 3) and leader.group.master_epoch == 2
    leader.live.ids = {1, 2, 3}
    assert leader.alter({1, 2, 3}).code == Code.SUCCESS
    leader.live.ids = {2, 3}
    assert leader.elect(1, designate=True).code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert leader.elect(master, designate=True).code == Code.CONTROLLER_MASTER_STILL_EXIST
    leader.live.ids = {1, 2, 3} - {master}
    won = leader.elect(1, designate=True)
    assert won.code == Code.SUCCESS
    assert (won.header.master_epoch, won.header.master_address) == (3, "a:1")


def test_c9_no_member_lives() -> None:
    leader = set_up()
    leader.alter({1})
    leader.live.ids = {2, 3}
    decision = leader.elect()
    assert decision.code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert decision.events == (ElectMaster(NAME, None),)
    group = leader.group
    assert (group.master_id, group.master_epoch, group.members) == (None, 2, {1})
    again = leader.elect()
    assert again.code == Code.CONTROLLER_MASTER_NOT_AVAILABLE and not again.events
    decision = leader.elect(2)
    assert decision.code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert decision.header.master_broker_id is None
    leader.live.ids = {1}
    assert leader.elect(1).code == Code.SUCCESS
    assert leader.group.master_epoch == 3


def test_c10_unclean_election() -> None:
    leader = set_up()
    leader.alter({1})
    leader.live.ids = {2, 3}
    leader.unclean = True
    assert leader.elect().code == Code.SUCCESS
    master = leader.group.master_id
    assert master in (2, 3)
    assert (leader.group.members, leader.group.master_epoch) == ({master}, 2)


def test_a_fence_raises_the_epoch_of_the_same_set() -> None:
    """A proposal made before the fence that arrives late has no effect."""
    leader = set_up()
    assert leader.alter({1, 2, 3}, fence=True).header.new_sync_state_set_epoch == 3
    assert (leader.group.members, leader.epochs) == ({1, 2, 3}, (1, 3))
    assert leader.alter({1}, (1, 2)).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


def test_alter_is_refused_for_each_reason_in_order() -> None:
    leader = set_up()
    assert leader.alter({3, 2, 1}).code == Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert leader.alter({1}, master=2).code == Code.CONTROLLER_INVALID_MASTER
    assert leader.alter({1}, (2, 2)).code == Code.CONTROLLER_FENCED_MASTER_EPOCH
    assert leader.alter({1}, (1, 1)).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert leader.alter({1, 9}).code == Code.CONTROLLER_INVALID_REPLICAS
    assert leader.alter({1}, (1, 1), fence=True).code == (
        Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    )
    leader.live.ids = {1, 3}
    assert leader.alter({1, 2}).code == Code.CONTROLLER_BROKER_NOT_ALIVE
    decision = leader.alter({3})
    assert decision.code == Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert decision.header.new_sync_state_set_epoch == 0
    assert leader.epochs == (1, 2)
    decision = leader.alter({1, 3})
    assert decision.header.new_sync_state_set_epoch == 3
    assert SyncStateSet.decode(decision.body) == SyncStateSet(frozenset({1, 3}), 3)


def test_alter_of_an_unknown_group() -> None:
    leader = Leader()
    leader.live.ids = {1}
    leader.join(1)
    decision = leader.alter({1}, (0, 0), master=1)
    assert decision.code == Code.CONTROLLER_INVALID_MASTER
    assert "{null}" in (decision.remark or "")
    leader.clean(living=True)
    assert leader.alter({1}, (0, 0), master=1).code == (Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED)


def test_an_unregistered_broker_causes_no_election() -> None:
    leader = Leader()
    assert leader.elect(1).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    leader = set_up()
    assert leader.elect(9).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert leader.elect(9, designate=True).code == Code.CONTROLLER_ELECT_MASTER_FAILED


def test_the_first_master_of_a_group_that_was_forgotten_is_the_one_with_the_log() -> None:
    """An empty broker that asks first must not make the others truncate their logs."""
    leader = set_up()
    leader.clean(living=True)
    leader.join(4)
    leader.join(5)
    leader.live.ids = {4, 5}
    leader.live.tell(4, -1, 0)
    leader.live.tell(5, 3, 1_000)
    won = leader.elect(4)
    assert won.header.master_broker_id == 5
    assert won.header.master_epoch == 4  # above the epochs that brokers know


def test_epochs_that_brokers_know_are_passed_and_made_up_ones_are_not() -> None:
    leader = set_up()
    leader.live.ids = {2, 3}
    leader.live.tell(2, 7, 100)
    leader.elect()
    assert (leader.group.master_id, leader.group.master_epoch) == (2, 8)
    leader.live.ids = {2, 3}
    leader.live.tell(3, EPOCH_JUMP_MAX + 9, 100)
    leader.alter({2, 3})
    leader.live.ids = {3}
    leader.elect()
    assert leader.group.master_epoch == 9


def test_a_group_is_looked_after() -> None:
    leader = set_up()
    assert leader.look() is None
    leader.live.ids = {2, 3}
    leader.live.silent = {1}
    assert leader.look() is None
    leader.live.silent = set()
    assert leader.look() is not None
    assert leader.group.master_epoch == 2
    assert leader.look() is None


def test_no_replica_is_given_up_while_a_member_may_still_come() -> None:
    leader = set_up()
    leader.live.ids, leader.live.silent = set(), {2}
    assert leader.look() is None
    leader.live.silent = set()
    assert leader.look() is not None
    assert leader.group.master_id is None
    assert leader.look() is None


def test_a_replica_that_fell_silent_with_its_master_is_not_elected() -> None:
    """F9: the master and this replica are cut off together; its election would prevent a better
    one."""
    leader = set_up()
    leader.live.ids, leader.live.stale = {3}, {2}
    leader.live.tell(2, 9, 9_000)
    leader.look()
    assert leader.group.master_id == 3
    leader = set_up()
    leader.live.ids, leader.live.stale = set(), {2}
    assert leader.look() is None  # neither is the master given up yet
    leader.live.ids = {2}
    leader.look()
    assert leader.group.master_id == 2


def on_paper(*, unfit: int = 0) -> Leader:
    """Broker 1 is dead, and 2 was elected of {1, 2, 3}; its reported log may be from before a
    restart."""
    leader = set_up()
    leader.live.ids = {2, 3}
    leader.live.tell(2, 1, 9, leased=True)
    leader.live.tell(3, 1, 8, leased=True)
    if unfit:
        leader.register(unfit, unclean=True)
    assert leader.elect().header.master_broker_id == 2
    return leader


def test_a_complete_replica_is_elected_after_a_master_that_never_began() -> None:
    leader = on_paper()
    leader.live.ids = {3}
    assert leader.elect(3).code == Code.SUCCESS
    assert (leader.group.master_id, leader.group.members) == (3, {3})
    leader.live.ids = {1}
    assert leader.elect(1).code == Code.SUCCESS, "nothing was acknowledged since it was master"


def test_no_other_replica_after_a_term_that_began() -> None:
    leader = on_paper()
    leader.take(elections.decide_begin_term(leader.tables, NAME, 1))
    assert leader.group.eligible == {1, 3}, "of an earlier epoch"
    leader.take(elections.decide_begin_term(leader.tables, NAME, 2))
    leader.live.ids = {1, 3}
    assert leader.elect(3).code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert not elections.decide_begin_term(leader.tables, NAME, 2).events, "once"
    assert not elections.decide_begin_term(leader.tables, "unknown", 2).events


def test_a_nominal_master_that_lost_bytes_gives_way_to_a_complete_replica() -> None:
    """The power of 2 fails and 1 is killed, before 2 is missed: 2 is elected, and returns without
    its page cache. 3 has all acknowledged bytes."""
    leader = on_paper()
    decision = leader.register(2, unclean=True)
    assert (decision.header.master_broker_id, leader.group.master_id) == (3, 3)
    assert leader.group.eligible == {1, 2}
    leader.live.ids = {2}
    assert leader.elect(2).code == Code.CONTROLLER_ELECT_MASTER_FAILED


def test_an_unfit_one_is_no_candidate_after_it_either() -> None:
    leader = on_paper(unfit=3)
    leader.live.ids = {3}
    assert leader.elect(3).code == Code.CONTROLLER_ELECT_MASTER_FAILED
    leader.live.ids = {1, 3}
    assert leader.elect(3).header.master_broker_id == 1


def test_a_broker_that_joins_or_is_forgotten_is_not_counted_twice() -> None:
    leader = on_paper()
    assert leader.alter({2, 3}).code == Code.SUCCESS
    assert leader.group.eligible == {1}
    assert leader.clean("1", living=True).code == Code.SUCCESS
    assert leader.group.eligible == frozenset()


def test_after_an_unclean_election_only_the_set_counts() -> None:
    """Replicas cut off the bytes that the unclean master lacks."""
    leader = set_up()
    leader.unclean = True
    assert leader.alter({1, 2}).code == Code.SUCCESS
    leader.live.ids = {3}
    leader.live.tell(3, 1, 5, leased=True)
    assert leader.elect(3).code == Code.SUCCESS
    assert (leader.group.members, leader.group.eligible) == ({3}, frozenset())


def test_an_unfit_replica_leaves_the_set_while_the_master_lives() -> None:
    leader = set_up()
    leader.register(2, unclean=True)
    assert leader.group.unfit_members == {2}
    leader.look()
    assert leader.group.members == {1, 3} and leader.group.is_unfit(2)
    assert leader.alter({1, 2, 3}).code == Code.SUCCESS
    assert not leader.group.is_unfit(2)


def test_a_masters_decisions_before_a_replica_lost_bytes_do_not_count_after() -> None:
    leader = set_up()
    leader.alter({1, 3})
    before = leader.epochs
    leader.register(2, unclean=True)
    assert leader.alter({1, 2, 3}, before).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert leader.alter({1, 2, 3}).code == Code.SUCCESS


def test_nothing_is_added_before_the_unfit_one_left() -> None:
    leader = set_up()
    leader.alter({1, 2})
    leader.register(2, damaged=True)
    assert leader.alter({1, 2, 3}).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


def test_an_unfit_member_is_passed_over_unless_it_is_named() -> None:
    leader = set_up()
    leader.live.ids = {2, 3}
    leader.live.tell(2, 9, 9_000)
    leader.live.tell(3, 1, 1)
    leader.register(2, unclean=True)
    leader.elect()
    assert leader.group.master_id == 3
    leader = set_up()
    leader.live.ids = {2, 3}
    leader.register(2, unclean=True)
    assert leader.elect(2, designate=True).code == Code.SUCCESS
    assert leader.group.master_id == 2 and not leader.group.is_unfit(2)


def test_all_unfit_the_longest_log_once_all_are_here() -> None:
    leader = set_up()
    leader.alter({1, 2})
    leader.live.ids = set()
    leader.look()
    leader.register(1, unclean=True)
    leader.register(2, unclean=True)
    leader.live.ids = {1}
    leader.live.tell(1, 1, 500)
    assert leader.look() is None
    leader.live.ids = {1, 2}
    leader.live.tell(2, 1, 700)
    leader.look()
    assert leader.group.master_id == 2 and not leader.group.is_unfit(2)
    assert leader.group.is_unfit(1)


def test_a_damaged_log_is_not_led_until_it_is_repaired() -> None:
    """The election of a broker with a damaged log would be useless, and repeated for ever."""
    leader = set_up()
    leader.alter({1})
    leader.live.ids = {1}
    leader.live.tell(1, 1, 500)
    leader.register(1, damaged=True)
    assert leader.group.master_id is None and leader.group.master_epoch == 2
    for _ in range(5):
        assert leader.look() is None
        leader.register(1, damaged=True)
    assert leader.group.master_epoch == 2
    leader.register(1)
    leader.look()
    assert leader.group.master_id == 1 and leader.group.master_epoch == 3
    leader = set_up()
    leader.alter({1, 2})
    leader.live.ids = set()
    leader.look()
    leader.register(1, damaged=True)
    leader.register(2, unclean=True)
    leader.live.ids = {1, 2}
    leader.live.tell(1, 1, 900)
    leader.live.tell(2, 1, 100)
    leader.look()
    assert leader.group.master_id == 2


def test_an_unfit_master_is_replaced_with_its_registration() -> None:
    leader = set_up()
    decision = leader.register(1, damaged=True)
    assert decision.header.master_broker_id in (2, 3)
    assert leader.group.master_epoch == 2 and leader.group.is_unfit(1)
    leader = set_up()
    leader.alter({1})
    leader.live.ids = {1}
    decision = leader.register(1, unclean=True)
    assert decision.header.master_broker_id is None and leader.group.master_id is None
    leader.live.tell(1, 1, 5)
    leader.look()
    assert leader.group.master_id == 1 and leader.group.master_epoch == 3


def test_after_all_members_were_forgotten_an_administrator_decides() -> None:
    leader = set_up()
    leader.alter({1})
    leader.live.ids = {2, 3}
    leader.clean("1")
    group = leader.group
    assert (group.members, group.master_id, set(group.replicas)) == (set(), None, {2, 3})
    assert leader.look() is None
    assert leader.elect(2).code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert leader.elect(3, designate=True).code == Code.SUCCESS
    assert leader.group.members == {3}


class TestWhoTakesNoWrites:
    """A broker reports with its heartbeats that it cannot serve writes, and a different broker
    leads."""

    @pytest.mark.parametrize("what", [StoreHealth.FULL, StoreHealth.STOPPING, StoreHealth.FAILED])
    def test_a_master_is_replaced_while_it_lives(self, what: StoreHealth) -> None:
        leader = set_up()
        leader.live.unfit[1] = what
        leader.look()
        assert (leader.group.master_id, leader.epochs[0]) == (2, 2)

    @pytest.mark.parametrize("what", [StoreHealth.FULL, StoreHealth.FAILED])
    def test_it_is_not_elected_while_another_can(self, what: StoreHealth) -> None:
        leader = set_up()
        leader.live.tell(2, 1, 200)
        leader.live.tell(3, 1, 100)
        leader.live.unfit[2] = what
        leader.live.ids = {2, 3}
        leader.look()
        assert leader.group.master_id == 3, "though 2 has the longer log"

    def test_a_broker_outside_of_the_set_is_no_way_out(self) -> None:
        leader = set_up(alter=False)
        leader.live.unfit[1] = StoreHealth.FULL
        assert leader.look() is None
        assert leader.group.master_id == 1

    def test_where_all_disks_are_full_the_master_stays(self) -> None:
        leader = set_up()
        leader.live.unfit = dict.fromkeys((1, 2, 3), StoreHealth.FULL)
        assert leader.look() is None
        assert (leader.group.master_id, leader.epochs) == (1, (1, 2))

    def test_one_that_stops_stays_until_another_takes_messages(self) -> None:
        leader = set_up()
        leader.live.unfit = {1: StoreHealth.STOPPING, 2: StoreHealth.FULL, 3: StoreHealth.STOPPING}
        assert leader.look() is None
        assert (leader.group.master_id, leader.epochs) == (1, (1, 2))
        del leader.live.unfit[2]
        leader.look()
        assert leader.group.master_id == 2

    def test_a_full_one_is_better_than_none(self) -> None:
        leader = set_up()
        leader.live.unfit = {1: StoreHealth.FAILED, 2: StoreHealth.FULL, 3: StoreHealth.FAILED}
        leader.look()
        assert leader.group.master_id == 2

    def test_no_replica_can_lead_until_one_can(self) -> None:
        """The elected broker declines; the epoch is raised once, not at each lookup."""
        leader = set_up()
        leader.live.unfit = dict.fromkeys((1, 2, 3), StoreHealth.FAILED)
        leader.look()
        assert (leader.group.master_id, leader.epochs[0]) == (None, 2)
        assert leader.look() is None
        assert leader.elect(1).code == Code.CONTROLLER_ELECT_MASTER_FAILED
        assert leader.epochs[0] == 2
        del leader.live.unfit[3]
        leader.look()
        assert (leader.group.master_id, leader.epochs[0]) == (3, 3)

    def test_a_failed_store_is_not_the_first_master(self) -> None:
        leader = Leader()
        leader.live.ids = {1, 2}
        leader.join(1)
        leader.join(2)
        leader.live.tell(1, 5, 200)
        leader.live.tell(2, 4, 100)
        leader.live.unfit[1] = StoreHealth.FAILED
        leader.elect(2)
        assert leader.group.master_id == 2

    def test_no_replica_is_surely_complete_and_one_is_about_to_come_back(self) -> None:
        """All brokers are unclean: the longest log wins, and the failed store may have it."""
        leader = set_up(alter=False)
        leader.live.tell(1, 1, 100)
        leader.live.unfit[1] = StoreHealth.FAILED
        leader.register(1, unclean=True)
        assert leader.group.master_id is None
        assert leader.look() is None
        leader.live.unfit.clear()
        leader.look()
        assert leader.group.master_id == 1

    def test_not_even_uncleanly(self) -> None:
        leader = set_up(alter=False)
        leader.unclean = True
        leader.live.unfit = {1: StoreHealth.FAILED, 2: StoreHealth.FAILED}
        leader.look()
        assert leader.group.master_id == 3

    def test_a_slow_member_is_elected_before_a_full_one(self) -> None:
        leader = set_up()
        leader.live.ids = {2, 3}
        leader.live.unfit = {2: StoreHealth.FULL, 3: StoreHealth.SLOW}
        leader.look()
        assert leader.group.master_id == 3

    def test_an_administrator_gets_a_full_one_and_no_failed_one(self) -> None:
        leader = set_up()
        leader.live.unfit = {2: StoreHealth.FULL, 3: StoreHealth.FAILED}
        assert leader.elect(3, designate=True).code == Code.CONTROLLER_ELECT_MASTER_FAILED
        assert leader.elect(2, designate=True).code == Code.SUCCESS
        assert leader.group.master_id == 2

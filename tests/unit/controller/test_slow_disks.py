"""The lead moves from a master with a slow disk to a member with a fast one, or stays."""

import pytest
from tests.unit.controller.groups import Node, running, set_up

from turbopump.controller.liveness import SETTLED_MS
from turbopump.engine.types import StoreHealth
from turbopump.net.wire.codes import ResponseCode as Code


class TestChoice:
    """The lead moves from a master whose syncs take too long for sends to a fast member."""

    def test_a_member_that_reports_a_fast_disk_leads(self) -> None:
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast = {3}
        leader.look()
        assert (leader.group.master_id, leader.epochs[0]) == (3, 2)

    def test_a_broker_that_asks_gets_the_fast_member_too(self) -> None:
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast = {2}
        assert leader.elect(1).header.master_broker_id == 2

    def test_a_member_that_reports_nothing_does_not_lead(self) -> None:
        """The member is a broker of RocketMQ, or has made no sync yet."""
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        assert leader.look() is None
        assert leader.elect(2).code == Code.CONTROLLER_MASTER_STILL_EXIST
        assert (leader.group.master_id, leader.epochs) == (1, (1, 2))

    def test_where_all_are_slow_the_master_stays(self) -> None:
        leader = set_up()
        leader.live.unfit = dict.fromkeys((1, 2, 3), StoreHealth.SLOW)
        assert leader.look() is None
        assert (leader.group.master_id, leader.epochs) == (1, (1, 2))

    def test_a_broker_outside_of_the_set_does_not_lead(self) -> None:
        leader = set_up(alter=False)
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast = {2, 3}
        assert leader.look() is None
        assert leader.group.master_id == 1

    @pytest.mark.parametrize("what", [StoreHealth.FULL, StoreHealth.STOPPING, StoreHealth.FAILED])
    def test_an_unfit_member_does_not_lead(self, what: StoreHealth) -> None:
        leader = set_up()
        leader.live.unfit = {1: StoreHealth.SLOW, 2: what, 3: what}
        leader.live.fast = {2, 3}
        assert leader.look() is None
        assert leader.group.master_id == 1

    def test_a_stale_member_does_not_lead(self) -> None:
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast, leader.live.ids, leader.live.stale = {2}, {1, 3}, {2}
        assert leader.look() is None
        assert leader.group.master_id == 1

    def test_a_member_that_may_lack_bytes_does_not_lead(self) -> None:
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast = {2}
        leader.register(2, unclean=True)
        leader.look()
        assert (leader.group.master_id, leader.group.members) == (1, {1, 3})

    def test_the_lead_does_not_move_before_the_term_is_settled(self) -> None:
        leader = set_up()
        leader.live.unfit[1] = StoreHealth.SLOW
        leader.live.fast, leader.live.settled = {2}, False
        assert leader.look() is None
        leader.live.settled = True
        leader.look()
        assert leader.group.master_id == 2

    def test_a_slow_member_is_not_elected_beside_a_fit_one(self) -> None:
        leader = set_up()
        leader.live.tell(2, 1, 200)
        leader.live.tell(3, 1, 100)
        leader.live.unfit[2] = StoreHealth.SLOW
        leader.live.ids = {2, 3}
        leader.look()
        assert leader.group.master_id == 3, "though 2 has the longer log"

    def test_a_slow_member_is_elected_if_it_is_the_only_one(self) -> None:
        leader = set_up()
        leader.alter({1, 2})
        leader.live.ids = {2, 3}
        leader.live.unfit[2] = StoreHealth.SLOW
        leader.live.fast = {3}
        leader.look()
        assert leader.group.master_id == 2

    def test_a_master_that_stops_hands_over_to_a_slow_one(self) -> None:
        leader = set_up()
        leader.live.unfit = {1: StoreHealth.STOPPING, 2: StoreHealth.SLOW, 3: StoreHealth.SLOW}
        leader.look()
        assert leader.group.master_id == 2


class TestHeartbeats:
    """Heartbeats report whether syncs are slow."""

    def test_the_lead_moves_to_a_member_that_reports_a_fast_disk(self) -> None:
        node = settled()
        node.beat(3, slow=False)
        assert node.beat(1, slow=True).lease_ms is None, "it is no longer the broker to lead"
        assert (node.group.master_id, node.group.master_epoch) == (3, 2)

    def test_it_does_not_move_to_a_member_that_reports_nothing(self) -> None:
        node = settled()
        assert node.beat(1, slow=True).lease_ms is not None
        node.tick(500)
        assert node.group.master_id == 1

    def test_the_next_look_sees_a_member_that_reports_later(self) -> None:
        node = settled()
        node.beat(1, slow=True)
        node.beat(2, slow=False)
        node.tick(500)
        assert node.group.master_id == 2

    def test_a_report_of_a_former_life_does_not_count(self) -> None:
        node = settled()
        node.beat(2, slow=False)
        node.register(2)
        node.beat(1, slow=True)
        assert node.group.master_id == 1

    def test_a_term_moves_once_it_is_ten_seconds_old(self) -> None:
        """The lead does not alternate, whatever brokers report."""
        node = settled()
        node.beat(2, slow=False)
        node.beat(1, slow=True)
        assert node.group.master_id == 2
        node.beat(2, epoch=2)
        assert node.alter(1, 2, 3).code == 0
        moved_ms = 0
        while node.group.master_id == 2:
            node.beat(1, slow=False)
            node.beat(2, epoch=2, slow=True)
            node.beat(3)
            node.tick(500)
            moved_ms += 500
        assert (node.group.master_id, moved_ms) == (1, SETTLED_MS)

    def test_another_unfitness_counts_more(self) -> None:
        node = settled()
        for broker_id in (2, 3):
            node.beat(broker_id, unfit="full", slow=False)
        node.beat(1, slow=True)
        assert node.group.master_id == 1
        node.beat(1, unfit="failed", slow=True)
        assert node.group.master_id in (2, 3)


def settled() -> Node:
    """A leader with three brokers in sync, and a master old enough to be replaced."""
    node = running()
    for _ in range(SETTLED_MS // 1000):
        node.tick(1000)
        for broker_id in (1, 2, 3):
            node.beat(broker_id)
    return node

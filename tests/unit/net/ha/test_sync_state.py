"""The SyncStateSet at its master: shrinking, expanding, and the confirmed offset."""

import random

import pytest

from turbopump.engine.types import LogOffset
from turbopump.net.ha.sync_state import (
    CONNECT_GRACE_MS,
    JOIN_AGAIN_MS,
    JOIN_GAP_MAX,
    JOIN_WAIT_MS,
    PROPOSE_AGAIN_MS,
    Proposal,
    SyncOptions,
    SyncState,
)

START = 1000


def state_of(*members: int, confirm: int = START, **options: bool | int) -> SyncState:
    """Master 1 of an epoch that starts at START; every other member is connected at time 0."""
    state = SyncState(
        SyncOptions(1, **options), frozenset(members), 5, LogOffset(START), LogOffset(confirm), 0
    )
    state.on_log(LogOffset(START))
    for member in members:
        if member != 1:
            state.on_connected(member, member, False, 0)
    return state


def ack(state: SyncState, broker_id: int, at: int, now_ms: int = 0) -> Proposal | None:
    return state.on_ack(broker_id, broker_id, LogOffset(at), now_ms)


# --- confirmOffset


def test_alone_everything_is_confirmed() -> None:
    state = state_of(1)
    assert state.on_log(LogOffset(1200)) and state.confirm_offset == 1200


def test_bytes_from_before_the_epoch_count_when_reported() -> None:
    """A new master's own log may not be durable yet under SYNC_FLUSH."""
    state = SyncState(SyncOptions(1), frozenset({1}), 5, LogOffset(START), LogOffset(900), 0)
    assert state.on_tick(0) is None
    assert state.confirm_offset == 900 == state.all_end()
    assert state.on_log(LogOffset(START)) and state.confirm_offset == START


def test_confirmed_is_the_minimum_of_all_members() -> None:
    state = state_of(1, 2, 3)
    state.on_log(LogOffset(1500))
    ack(state, 2, 1500)
    assert state.confirm_offset == START
    ack(state, 3, 1200)
    assert state.confirm_offset == 1200
    # ahead of the offset that the master counts, because the master's own disk is slower
    ack(state, 3, 1600)
    assert state.confirm_offset == 1500


def test_r06_a_connection_that_said_nothing_holds_confirm() -> None:
    state = state_of(1, 2)
    state.on_log(LogOffset(1500))
    ack(state, 2, 1400)
    state.on_connected(2, 77, False, 5)
    state.on_log(LogOffset(1600))
    assert state.confirm_offset == 1400
    assert ack(state, 2, 1600, 6) is None  # a late acknowledgement from the older connection
    assert state.confirm_offset == 1400
    state.on_ack(2, 77, LogOffset(1350), 7)
    assert state.confirm_offset == 1400  # and it does not go back
    state.on_ack(2, 77, LogOffset(1600), 8)
    assert state.confirm_offset == 1600


def test_r05_a_member_without_a_connection_holds_confirm() -> None:
    state = state_of(1, 2, 3)
    for member in (2, 3):
        ack(state, member, START)
    proposal = state.on_disconnected(3, 3, 10)
    assert proposal == Proposal(1, frozenset({1, 2}), 5)
    state.on_log(LogOffset(1100))
    ack(state, 2, 1100)
    assert state.confirm_offset == START  # the controller has not agreed
    assert state.on_agreed(frozenset({1, 2}), 6, 20)
    assert state.confirm_offset == 1100


def test_without_all_ack_everything_counts() -> None:
    state = state_of(1, 2, all_ack=False)
    assert state.on_log(LogOffset(1500)) and state.confirm_offset == 1500


# --- shrinking


def test_a_member_that_does_not_catch_up_is_left_out() -> None:
    state = state_of(1, 2, max_time_not_caught_up_ms=15_000)
    ack(state, 2, START, 100)
    state.on_log(LogOffset(1500))
    assert state.on_tick(15_100) is None
    assert state.on_tick(15_101) == Proposal(1, frozenset({1}), 5)


def test_a_leaving_replica_is_asked_once_a_period() -> None:
    state = state_of(1, 2, 3, max_time_not_caught_up_ms=15_000, check_period_ms=5_000)
    ack(state, 2, START, 100)
    state.on_log(LogOffset(1500))
    assert state.on_tick(14_000) is None
    assert state.on_tick(15_200) is None
    assert state.on_tick(18_999) is None
    assert state.on_tick(19_000) == Proposal(1, frozenset({1}), 5)


def test_a_member_that_follows_a_growing_log_stays() -> None:
    """The member never has the whole log, but always has the log of a moment ago."""
    state = state_of(1, 2)
    for now_ms in range(0, 60_000, 500):
        state.on_log(LogOffset(START + now_ms + 500))
        assert ack(state, 2, START + now_ms, now_ms) is None
        assert state.on_tick(now_ms) is None


def test_an_idle_member_stays() -> None:
    state = state_of(1, 2)
    ack(state, 2, START)
    assert state.on_tick(50_000) is None
    state.on_log(LogOffset(1100))
    assert state.on_tick(60_000) is None
    assert state.on_tick(65_001) is not None


def test_a_lost_connection_is_left_out_at_once() -> None:
    state = state_of(1, 2, 3)
    assert state.on_disconnected(2, 99, 1) is None  # an older connection of replica 2
    assert state.on_disconnected(2, 2, 1) == Proposal(1, frozenset({1, 3}), 5)


def test_members_have_a_moment_to_find_a_new_master() -> None:
    state = SyncState(
        SyncOptions(1), frozenset({1, 2, 3}), 5, LogOffset(START), LogOffset(START), 0
    )
    state.on_connected(3, 3, False, 300)
    assert state.on_tick(CONNECT_GRACE_MS) is None
    proposal = state.on_tick(CONNECT_GRACE_MS + 1)
    assert proposal is not None and proposal.members == {1, 3}


def test_r04_two_that_go_together_both_go() -> None:
    state = state_of(1, 2, 3)
    first = state.on_disconnected(2, 2, 1)
    assert first is not None and state.on_disconnected(3, 3, 1) is None  # one at a time
    assert state.on_agreed(frozenset({1, 3}), 6, 2)
    assert state.on_tick(3) == Proposal(2, frozenset({1}), 6)


# --- expanding


@pytest.mark.parametrize(
    ("at", "learner", "expected"),
    [(1500, False, True), (1499, False, False), (1500, True, False)],
    ids=["has all that is confirmed", "lacks a byte", "a learner never joins"],
)
def test_a_joining_replica(at: int, learner: bool, expected: bool) -> None:
    state = state_of(1)
    state.on_log(LogOffset(1500))
    state.on_connected(2, 2, learner, 0)
    proposal = ack(state, 2, at)
    assert (proposal is not None) is expected
    if proposal is not None:
        assert proposal.members == {1, 2}


def test_no_replica_joins_before_the_start_of_the_epoch() -> None:
    """Bytes before it may belong to a different epoch and be cut later (KIP-320, rule 4)."""
    state = state_of(1, 3, confirm=800)
    state.on_connected(2, 2, False, 0)
    assert ack(state, 2, START - 1) is None
    assert ack(state, 2, START) is not None


def test_r01_whoever_may_be_in_the_controllers_set_counts() -> None:
    """The reply is lost: the controller may have added the replica."""
    state = state_of(1)
    state.on_log(LogOffset(1500))
    state.on_connected(2, 2, False, 0)
    proposal = ack(state, 2, 1500)
    assert proposal is not None and state.required_ids == {1, 2}
    state.on_log(LogOffset(1600))
    assert state.all_end() < 1600 and state.confirm_offset == 1500
    state.on_lost(proposal.number, 10)
    assert state.required_ids == {1, 2}
    state.on_disconnected(2, 2, 20)
    assert state.required_ids == {1, 2} and state.confirm_offset == 1500
    again = state.on_tick(10 + PROPOSE_AGAIN_MS)
    assert again == Proposal(2, frozenset({1}), 5, fence=True)  # the wanted set is in force
    state.on_refused(2, 1500)
    assert state.all_end() < 1600
    # seen at the next check: the controller had added the replica
    assert state.on_agreed(frozenset({1, 2}), 6, 3000)
    shrink = state.on_tick(3000)
    assert shrink is not None and shrink.members == {1} and state.required_ids == {1, 2}
    assert state.on_agreed(frozenset({1}), 7, 3001)
    assert state.confirm_offset == 1600


def test_a_lost_proposal_of_members_alone_needs_no_fence() -> None:
    state = state_of(1, 2, 3)
    for number in (2, 3):
        state.on_connected(number, number, False, 0)
        ack(state, number, START)
    proposal = state.on_disconnected(3, 3, 10)
    assert proposal is not None
    state.on_lost(proposal.number, 20)
    state.on_connected(3, 4, False, 30)
    state.on_ack(3, 4, START, 40)
    assert state.on_tick(20 + PROPOSE_AGAIN_MS) is None


def test_a_refused_proposal_is_dead() -> None:
    state = state_of(1)
    state.on_connected(2, 2, False, 0)
    proposal = ack(state, 2, START)
    assert proposal is not None
    state.on_refused(proposal.number + 1, 1)
    assert state.required_ids == {1, 2}
    state.on_refused(proposal.number, 1)
    assert state.required_ids == {1}
    assert state.on_tick(PROPOSE_AGAIN_MS) is None
    assert state.on_tick(1 + PROPOSE_AGAIN_MS) == Proposal(2, frozenset({1, 2}), 5)


def test_r02_the_set_is_the_controllers() -> None:
    state = state_of(1, 2, 3)
    assert not state.on_agreed(frozenset({1, 9}), 5, 0)
    assert not state.on_agreed(frozenset({1, 9}), 4, 0)
    assert state.on_agreed(frozenset({1, 2}), 8, 0)
    assert (state.members, state.set_epoch, state.required_ids) == ({1, 2}, 8, {1, 2})


def test_a_replica_behind_under_load_is_waited_for() -> None:
    """A master alone confirms all at once: without a wait no replica could ever have the whole
    log."""
    state = state_of(1)
    state.on_connected(2, 2, False, 0)
    state.on_log(LogOffset(2000))
    assert ack(state, 2, 1500) is None
    assert state.required_ids == {1, 2}
    state.on_log(LogOffset(3000))
    assert state.confirm_offset == 2000
    proposal = ack(state, 2, 2000, 50)
    assert proposal is not None and proposal.members == {1, 2}
    state.on_agreed(frozenset({1, 2}), 6, 60)
    assert state.confirm_offset == 2000


def test_but_not_for_long_nor_again_at_once() -> None:
    state = state_of(1)
    state.on_connected(2, 2, False, 0)
    state.on_log(LogOffset(2000))
    ack(state, 2, 1500)
    state.on_log(LogOffset(3000))
    state.on_tick(JOIN_WAIT_MS)
    assert state.confirm_offset == 2000
    state.on_tick(JOIN_WAIT_MS + 1)
    assert (state.confirm_offset, state.required_ids) == (3000, {1})
    ack(state, 2, 1600, JOIN_WAIT_MS + 2)
    assert state.required_ids == {1}
    ack(state, 2, 1700, JOIN_WAIT_MS + 1 + JOIN_AGAIN_MS)
    assert state.required_ids == {1, 2}


def test_nor_for_one_that_is_far_behind() -> None:
    state = state_of(1)
    state.on_connected(2, 2, False, 0)
    state.on_log(LogOffset(START + JOIN_GAP_MAX + 1))
    ack(state, 2, START)
    assert state.required_ids == {1}


def test_a_fixed_set_is_not_altered() -> None:
    state = state_of(1, 2, fixed=True)
    state.on_connected(3, 3, False, 0)
    assert ack(state, 3, START) is None
    assert state.on_disconnected(2, 2, 0) is None
    assert state.on_tick(10**6) is None


def test_the_compared_minimum() -> None:
    state = state_of(1, 2)
    assert state.in_sync_count == 2
    state.on_disconnected(2, 2, 0)
    assert state.in_sync_count == 2  # as RocketMQ: the larger of the two
    state.on_agreed(frozenset({1}), 6, 0)
    assert state.in_sync_count == 1


class Storm:
    """A master's set, a controller, and a network that loses and delays their messages."""

    def __init__(self, seed: int, wait_ms: int) -> None:
        self.rng = random.Random(seed)
        self.state = state_of(1, 2, 3, max_time_sends_wait_ms=wait_ms)
        self.controller, self.set_epoch = frozenset({1, 2, 3}), 5
        self.sent: list[Proposal] = []
        self.late: list[Proposal] = []
        self.live = {2: 2, 3: 3}
        self.end, self.connections = START, 100

    def step(self, now_ms: int) -> Proposal | None:
        rng, state = self.rng, self.state
        broker_id, kind = rng.choice([2, 3, 4]), rng.randrange(7)
        if kind == 0:
            self.end += rng.randrange(50)
            state.on_log(LogOffset(self.end))
        elif kind == 1 and broker_id in self.live and rng.random() < 0.3:
            return state.on_disconnected(broker_id, self.live.pop(broker_id), now_ms)
        elif kind == 2 and rng.random() < 0.5:
            self.connections += 1
            self.live[broker_id] = self.connections
            state.on_connected(broker_id, self.connections, broker_id == 4, now_ms)
        elif kind == 3 and broker_id in self.live:
            at = max(START, state.acked_offset(broker_id) or 0)
            at = rng.choice([self.end, rng.randint(at, self.end)])
            return state.on_ack(broker_id, self.live[broker_id], LogOffset(at), now_ms)
        elif kind == 4 and self.sent:
            self.answer(self.sent.pop(), now_ms)
        elif kind == 5 and self.late:
            self.decide(self.late.pop(rng.randrange(len(self.late))))
        elif kind == 6 and rng.random() < 0.1:
            state.on_agreed(self.controller, self.set_epoch, now_ms)
        return state.on_tick(now_ms)

    def decide(self, proposal: Proposal) -> bool:
        agreed = proposal.set_epoch == self.set_epoch
        if agreed:
            self.controller, self.set_epoch = proposal.members, self.set_epoch + 1
        return agreed

    def answer(self, proposal: Proposal, now_ms: int) -> None:
        fate = self.rng.randrange(3)
        if fate == 2:
            self.late.append(proposal)
        elif self.decide(proposal):
            if fate == 0:
                self.state.on_agreed(self.controller, self.set_epoch, now_ms)
                return
        elif fate == 0:
            self.state.on_refused(proposal.number, now_ms)
            return
        self.state.on_lost(proposal.number, now_ms)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_r03_through_any_storm_the_controllers_set_counts(seed: int, wait_ms: int) -> None:
    """confirmOffset never decreases, and never exceeds the acknowledgements of the controller's
    set."""
    storm = Storm(seed, wait_ms)
    state, confirm = storm.state, START
    sets = 0
    for now_ms in range(0, 50_000, 50):
        before = {n: state.acked_offset(n) for n in storm.controller - {1}}
        proposal = storm.step(now_ms)
        if proposal is not None:
            storm.sent.append(proposal)
            sets += 1
        assert storm.controller <= state.required_ids
        assert 4 not in state.required_ids and 1 in state.members
        assert state.confirm_offset >= confirm
        if state.confirm_offset > confirm:
            positions = {n: state.acked_offset(n) or before.get(n) for n in storm.controller - {1}}
            assert all(at is not None and at >= state.confirm_offset for at in positions.values())
        confirm = state.confirm_offset
    # Few replicas keep up for the time that a formerly slow replica needs.
    assert sets > (0 if wait_ms else 3) and confirm > START


class TestAMemberThatSendsWaitFor:
    """haMaxTimeSendsWait, checked every 100 ms as in the broker."""

    WAIT_MS = 3_000

    def run(
        self, state: SyncState, start_ms: int, end_ms: int, slow: int = 3, *, acks: bool = False
    ) -> tuple[int, Proposal] | None:
        """Grow the log at each check; all but `slow` have it at once. Returns the first
        proposal."""
        for now_ms in range(start_ms, end_ms, 100):
            end = START + 10 + now_ms
            state.on_log(LogOffset(end))
            proposals = [
                ack(state, one, end, now_ms) for one in state._replicas if one != slow or acks
            ]
            proposals.append(state.on_tick(now_ms))
            for proposal in filter(None, proposals):
                return now_ms, proposal
        return None

    def test_leaves_long_before_it_counts_as_not_caught_up(self) -> None:
        """The controller has time to agree before the limit."""
        state = state_of(1, 2, 3)
        found = self.run(state, 100, 15_000)
        assert found is not None
        assert (found[0], found[1].members) == (2_800, {1, 2})

    def test_counts_until_the_controller_agreed(self) -> None:
        """The set never has fewer copies than promised."""
        state = state_of(1, 2, 3)
        assert self.run(state, 100, 15_000) is not None
        assert state.required_ids == {1, 2, 3}
        assert state.confirm_offset < state.log_end
        assert state.on_agreed(frozenset({1, 2}), 6, 3_200)
        assert state.confirm_offset == state.log_end

    @pytest.mark.parametrize(("least", "stay"), [(1, {1}), (2, {1, 2}), (3, {1, 2, 3})])
    def test_stays_where_too_few_would_be_left(self, least: int, stay: set[int]) -> None:
        state = state_of(1, 2, 3, min_in_sync_replicas=least)
        ack(state, 2, START, 500)  # replica 2 became slow a moment later than 3
        state.on_log(LogOffset(1500))
        found = None
        for now_ms in range(600, 10_000, 100):
            found = state.on_tick(now_ms) or found
            if found is not None and now_ms < 9_000 and len(found.members) > len(stay):
                assert state.on_agreed(found.members, state.set_epoch + 1, now_ms)
                found = None
        assert (state.members if found is None else found.members) == stay

    def test_has_no_time_of_its_own_where_no_send_waits_for_it(self) -> None:
        for options in ({"all_ack": False}, {"max_time_sends_wait_ms": 0}):
            state = state_of(1, 2, 3, **options)
            found = self.run(state, 100, 20_000)
            assert found is not None and found[0] == 15_100

    def test_a_stalled_master_takes_its_own_time_for_nobodys(self) -> None:
        state = state_of(1, 2, 3)
        assert self.run(state, 100, 2_000, acks=True) is None
        state.on_log(LogOffset(9_000))
        assert state.on_tick(7_000) is None, "five seconds without news of a replica"
        assert ack(state, 3, 9_000, 7_000) is None
        assert ack(state, 2, 9_000, 7_000) is None

    def test_comes_back_when_it_has_kept_up_for_a_while(self) -> None:
        state = state_of(1, 2, 3)
        assert self.run(state, 100, 15_000) is not None
        state.on_agreed(frozenset({1, 2}), 6, 3_100)
        assert self.run(state, 3_200, 9_000) is None, "it is still slow"
        found = self.run(state, 9_000, 20_000, acks=True)
        assert found is not None
        assert (found[0], found[1].members) == (8_900 + self.WAIT_MS, {1, 2, 3})
        assert state.required_ids == {1, 2, 3}

    def test_has_to_keep_up_for_twice_as_long_each_time(self) -> None:
        state = state_of(1, 2, 3)
        now_ms, waits = 100, []
        for _ in range(7):
            left = self.run(state, now_ms, now_ms + 10_000)
            assert left is not None
            state.on_agreed(left[1].members, state.set_epoch + 1, left[0])
            back = self.run(state, left[0] + 100, left[0] + 90_000, acks=True)
            assert back is not None and back[1].members == {1, 2, 3}
            state.on_agreed(back[1].members, state.set_epoch + 1, back[0])
            waits.append(back[0] - left[0])
            now_ms = back[0] + 100
        assert waits == [3_000, 6_000, 12_000, 24_000, 48_000, 60_000, 60_000]
        assert self.run(state, now_ms, now_ms + 700_000, acks=True) is None
        left = self.run(state, now_ms + 700_000, now_ms + 710_000)
        assert left is not None
        state.on_agreed(left[1].members, state.set_epoch + 1, left[0])
        back = self.run(state, left[0] + 100, left[0] + 90_000, acks=True)
        assert back is not None and back[0] - left[0] == 3_000, "that is long ago"

    def test_a_disk_of_three_seconds_is_not_waited_for(self) -> None:
        """Each time, the replica acknowledges the log's end at the start of its sync."""
        state = state_of(1, 2, 3)
        end = started = START
        left = None
        for now_ms in range(100, 30_000, 100):
            end += 10
            state.on_log(LogOffset(end))
            proposal = ack(state, 2, end, now_ms)
            if now_ms % 3_000 == 0:
                proposal = ack(state, 3, started, now_ms) or proposal
                started = end
            proposal = state.on_tick(now_ms) or proposal
            if proposal is not None:
                assert left is None, "it does not come back while it is slow"
                left = now_ms
                assert state.on_agreed(proposal.members, 6, now_ms)
        assert left is not None and left <= 3_100 + 3_000
        assert state.members == {1, 2}

"""Events between the steps in which a replica adopts its master's offsets."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import MASTER, Group

from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.tables import offset_sync
from turbopump.engine.deferred import Deferred

GROUPS = ("a", "b", "c")


class Pauses:
    """Turns of the loop that end when the test calls `end`."""

    def __init__(self) -> None:
        self.asked: list[Deferred[None]] = []

    def __call__(self) -> Deferred[None]:
        later: Deferred[None] = Deferred()
        self.asked.append(later)
        return later

    def end(self) -> None:
        """Run the next step."""
        asked, self.asked = self.asked, []
        for later in asked:
            later.resolve(None)

    def end_all(self) -> int:
        """Run the round to its end; returns the number of steps."""
        number = 0
        while self.asked:
            self.end()
            number += 1
        return number


class SteppedGroup(Group):
    """A group whose replica adopts one offset in each step."""

    def __init__(self, make_world: Callable[..., Any]) -> None:
        super().__init__(make_world)
        self.pauses = Pauses()
        self.follower = MetadataFollower(self.replica.broker, self.link, pause=self.pauses)
        self.replica.broker.offsets.adopted_at_once = offset_sync.QUEUE
        self.lead.begin_leading(9, 5)
        self.follower.begin_following(MASTER, 9, self.replica.steady_ms)

    def commit_all(self, offset: int) -> None:
        for name in GROUPS:
            self.commit(offset, group=name)

    @property
    def offsets(self) -> list[int]:
        return [self.offset(name) for name in GROUPS]


@pytest.fixture
def group(make_world: Callable[..., Any]) -> SteppedGroup:
    return SteppedGroup(make_world)


def test_others_have_the_loop_between_two_steps(group: SteppedGroup) -> None:
    group.commit_all(5)
    group.round()
    assert group.offsets == [5, -1, -1]
    assert group.follower.synced_ms < 0
    group.round()
    assert group.link.codes == [21, 201, 43], "one round at a time"
    assert group.pauses.end_all() >= len(GROUPS) - 1
    assert group.offsets == [5, 5, 5]
    assert group.link.codes == [21, 201, 43, 45, 60, 61, 402]
    assert group.follower.synced_ms == group.replica.steady_ms


def test_a_cut_between_two_steps_begins_the_round_anew(group: SteppedGroup) -> None:
    """The cut of the whole log lowered the offsets adopted in this round and in the previous
    round."""
    group.commit_all(5)
    group.round()
    group.pauses.end_all()
    group.commit(6)
    group.round()
    assert len(group.pauses.asked) == 1
    assert group.follower.on_truncated(9) > 0
    assert group.offsets == [0, 0, 0]
    asked = group.link.codes
    group.pauses.end()
    assert group.follower.on_truncated(9) > 0, "once more, in the second try"
    group.pauses.end()
    assert group.link.codes == asked, "of the same answer"
    group.pauses.end_all()
    assert group.offsets == [5, 5, 5]
    assert group.offset() == 6
    assert group.follower.error == ""
    group.round()
    group.pauses.end_all()
    assert group.offsets == [5, 5, 5]


def test_a_new_master_takes_over_no_more(group: SteppedGroup) -> None:
    group.commit_all(5)
    group.round()
    group.follower.begin_leading(10, 9)
    here = group.replica.broker.offsets
    version = here.data_version
    assert group.offsets == [0, -1, -1], "its log is empty"
    group.pauses.end_all()
    assert group.offsets == [0, -1, -1]
    assert here.data_version == version and version.state_version == 10
    assert here._adoption is None
    assert group.link.codes == [21, 201, 43], "nor does it ask on"


def test_a_follower_of_another_master_takes_over_no_more_of_the_first(group: SteppedGroup) -> None:
    group.commit_all(5)
    group.round()
    group.follower.begin_following("10.0.0.9:1", 11, group.replica.steady_ms)
    group.pauses.end_all()
    assert group.offsets == [5, -1, -1]
    assert group.replica.broker.offsets.data_version.state_version < 9
    group.round()
    group.pauses.end_all()
    assert set(group.link.addresses[3:]) == {"10.0.0.9:1"}
    assert group.offsets == [5, 5, 5]


def test_a_commit_between_two_steps_is_not_set_back(group: SteppedGroup) -> None:
    group.commit_all(5)
    group.round()
    group.pauses.end_all()
    group.commit_all(3)
    group.round()
    group.commit(8, group.replica, "c")
    group.pauses.end_all()
    assert group.offsets == [3, 3, 8]
    group.round()
    group.pauses.end_all()
    assert group.offsets == [3, 3, 8]

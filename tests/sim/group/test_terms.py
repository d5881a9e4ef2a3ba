"""Groups with controllers: a master's term that begins after its end, and a term that must not
begin.
"""

from dataclasses import replace

import pytest

from tests.sim.group.broker import GroupBroker
from tests.sim.group.stories import Story
from turbopump.broker.ha.control.controller_protocol import GroupState
from turbopump.engine.types import PutStatus


def notice(story: Story, master: GroupBroker, epoch: int) -> GroupState:
    """Notice of a controller about the master of an epoch."""
    own_id, set_epoch = master.controller_id, story.journal.role.set_epoch
    return GroupState(epoch, own_id, master.endpoint.address, frozenset({own_id}), set_epoch)


def test_a_term_that_is_over_begins_late_and_does_nothing() -> None:
    """A late notice of an election that was superseded starts no writes.

    A broker that nothing reaches is elected, then another, which acknowledges; only then the notice
    of the first election arrives. Its receiver cannot know that, and has no lease: it takes no
    message and confirms nothing, and a broker that knows the later epoch does not follow it (group
    seed 987).
    """
    story = Story.whole()
    late, epoch = story.replicas[0], story.journal.role.epoch + 1
    story.apart([late], story.rest(late))
    story.admin.elect(late.controller_id)
    story.elected(epoch - 1)
    assert (story.master, story.journal.role.epoch) == (late, epoch)
    word = notice(story, late, epoch)
    story.elected(epoch)
    story.writes()
    master, end, confirm = story.master, late.replicated.end, late.replicated.confirm
    assert master.replicated.confirm > end, "nothing that it could lack"
    late.run(late.member.on_notice, word)
    story.until(lambda: late.is_master, 1000, "no term")
    assert not late.member.has_lease()
    story.writes()
    assert late.is_master and late.service.epoch == epoch
    assert late.part.admit_append() is PutStatus.SERVICE_NOT_AVAILABLE
    assert late.send("A", 0, b"for the wrong master") is None
    assert (late.replicated.end, late.replicated.confirm) == (end, confirm)
    other = next(one for one in story.replicas if one is not late)
    other.run(other.member.on_notice, word)
    assert other.member.epoch > epoch
    assert other.service.master_address == master.ha_address
    story.net.heal()
    story.until(lambda: not late.is_master, 1000, "it goes on")
    story.end()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_master_that_lacks_confirmed_bytes_is_found(is_over: bool) -> None:
    """The checks find a master without all confirmed bytes (I3), both in the newest epoch and in an
    ended one whose master was elected with too few.
    """
    story = Story.whole()
    late, journal = story.replicas[0], story.journal
    story.apart([late], story.rest(late))
    story.alone(2)
    story.writes()
    confirmed, own_id = len(story.history.log), late.controller_id
    assert late.replicated.end < confirmed
    epoch = journal.role.epoch + 1
    journal.masters[epoch] = own_id
    if is_over:
        journal.role = replace(journal.role, epoch=epoch + 1)
        journal._left[own_id] = confirmed
    else:
        journal.role = replace(journal.role, epoch=epoch, master=own_id)
    late.run(late.member.on_notice, notice(story, late, epoch))
    with pytest.raises(AssertionError, match="leads with a log up to"):
        story.until(lambda: late.is_master, 1000, "no term")

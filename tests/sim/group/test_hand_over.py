"""Groups with controllers: a master that is stopped hands its lead over first (F15)."""

from tests.sim.group.stories import Story
from turbopump.broker.ha.leadership_handover import HAND_OVER_MS


def test_f15_one_after_the_other_is_another_version() -> None:
    """Messages are written all the time, at whatever mixture."""
    story = Story.whole(timeout_ms=1000)
    for server in [*story.controllers, story.names, *story.brokers]:
        server.crash(power=False)
        server.endpoint.is_later = True
        story.start(server)
        story.writes()
        story.until(story.is_whole, 30_000, "not whole")
    story.end()


def test_f15_a_master_that_is_stopped_hands_its_lead_over_first() -> None:
    """A stopping master serves until another broker is elected, and then follows no master; a start
    during the stop makes it start again afterwards.
    """
    story = Story.whole()
    old, epoch, ends = story.master, story.journal.role.epoch, story.ends
    old.stop()
    assert old.up and old.is_master
    story.start(old)
    assert story.elected(epoch) < 100
    assert (old.up, story.ends) == (True, ends), "it ends after the election"
    story.until(lambda: story.ends > ends, 200, "it does not end")
    story.alone(3)
    assert old.up and story.master is not old
    assert story.journal.role.epoch == epoch + 1
    story.end()


def test_f15_a_master_without_an_heir_stops_at_once() -> None:
    story = Story.whole()
    for replica in story.replicas:
        replica.stop()
        assert not replica.up
    story.alone(1)
    story.writes()
    story.master.stop()
    assert not story.master.up
    story.end()


def test_f15_a_stop_waits_for_no_controller_for_long() -> None:
    """The master has its lease still, and none of them answers: it is stopped all the same."""
    story = Story.whole(timeout_ms=10_000)
    old = story.master
    story.apart(story.controllers, story.rest(*story.controllers))
    old.stop()
    story.go(HAND_OVER_MS - 200)
    assert old.up and old.is_master
    story.until(lambda: not old.up, 400, "it does not end")
    story.net.heal()
    story.end()

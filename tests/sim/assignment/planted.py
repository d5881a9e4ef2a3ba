"""Bugs of the assignment, to be planted one at a time: the suite must find each."""

from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.broker.assignment.coordinator import CoordinatedTopics
from turbopump.broker.assignment.handover import QueueHandover
from turbopump.broker.assignment.routes import GroupCoordinator, KnownRoute
from turbopump.broker.tables.assignment_store import AssignmentStore
from turbopump.net.allocation import strategies


def queues_are_given_to_both_at_once(patch: Patch) -> None:
    """A moved queue is given to its new owner before the old one released it (as in RocketMQ)."""
    begin = QueueHandover.begin_handover

    def gives(self: QueueHandover, shares: Any, now_ms: int, handover_ms: int) -> None:
        begin(self, shares, now_ms, handover_ms)
        self._holder.clear()

    patch.setattr(QueueHandover, "begin_handover", gives)


def sticky_is_average(patch: Patch) -> None:
    """STICKY is balanced, but moves more queues than necessary."""
    patch.setitem(strategies.STRATEGIES, strategies.STICKY, strategies.allocate_averagely)


def each_broker_decides(patch: Patch) -> None:
    """Each broker decides for itself, without a coordinator."""
    patch.setattr(KnownRoute, "coordinator", lambda self: None)


def the_largest_name_coordinates_for_some(patch: Patch) -> None:
    """Two brokers take different brokers for the coordinator."""
    calls: list[None] = []

    def coordinator(self: KnownRoute) -> GroupCoordinator:
        calls.append(None)
        name = (min if len(calls) % 2 else max)(self.brokers)
        return GroupCoordinator(name, 0, self.brokers[name][0])

    patch.setattr(KnownRoute, "coordinator", coordinator)


def a_member_that_left_keeps_its_queues(patch: Patch) -> None:
    """Queues of a member that left are never free, not even after the hand-over time."""
    patch.setattr(QueueHandover, "remove_member", lambda self, member, now_ms: set())
    patch.setattr(QueueHandover, "is_due", lambda self, now_ms: False)


def new_members_are_not_noticed(patch: Patch) -> None:
    """The assignment is that of the first members for ever."""
    bring_up_to_date = CoordinatedTopics.bring_up_to_date

    def first(self: CoordinatedTopics, entry: Any, *more: Any) -> Any:
        return bring_up_to_date(
            self, entry, *more[:5], *(more[5:] if entry.basis is None else (0,))
        )

    patch.setattr(CoordinatedTopics, "bring_up_to_date", first)


def nothing_is_kept(patch: Patch) -> None:
    """A broker that comes back, or takes over, begins with nothing, and all that is held moves."""
    patch.setattr(AssignmentStore, "put", lambda self, row: None)


BUGS: tuple[Plant, ...] = (
    queues_are_given_to_both_at_once,
    sticky_is_average,
    each_broker_decides,
    the_largest_name_coordinates_for_some,
    a_member_that_left_keeps_its_queues,
    new_members_are_not_noticed,
    nothing_is_kept,
)

"""Bugs of pop in a group, to be planted one at a time: the suites must find each."""

from tests.sim.planting import Patch
from turbopump.broker.pop.order_journal import OrderJournal
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.deferred import Deferred
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.types import PutStatus


def ordered_batches_are_one_brokers(patch: Patch) -> None:
    """Ordered batches are only in the broker's memory, not in the log (as in RocketMQ)."""

    def kept(self: OrderJournal, queue: PoppedQueue, now_ms: int) -> Deferred[PutStatus]:
        later: Deferred[PutStatus] = Deferred()
        later.resolve(PutStatus.PUT_OK)
        return later

    patch.setattr(OrderJournal, "write", kept)


def proofs_of_new_lives_are_passed_over(patch: Patch) -> None:
    """A deletion that no table has is lost with its master (as in RocketMQ)."""
    patch.setattr(LogDispatcher, "_note_new_life", lambda *_arguments: None)

"""Bugs of pop, to be planted one at a time: the suite must find each."""

from tests.sim.planting import Patch, Plant
from turbopump.broker.pop import service
from turbopump.broker.pop.revive import ReviveQueue
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.pop.settled_time import SettledTime
from turbopump.engine.later import Later
from turbopump.engine.types import PutStatus


def acknowledgements_are_answered_at_once(patch: Patch) -> None:
    """Their records may be lost with the power."""
    add_ack = ReviveLog.add_ack

    def answered(self: ReviveLog, *arguments: object) -> Later[PutStatus]:
        add_ack(self, *arguments)
        later: Later[PutStatus] = Later()
        later.resolve(PutStatus.PUT_OK)
        return later

    patch.setattr(ReviveLog, "add_ack", answered)


def acknowledgements_are_not_waited_for(patch: Patch) -> None:
    """A message is revived by the clock, whatever is still to be read."""
    patch.setattr(SettledTime, "step", lambda self, now_ms: now_ms)


def hand_outs_are_forgotten(patch: Patch) -> None:
    """After a crash the saved offsets count (as in RocketMQ)."""
    patch.setattr(service.PopService, "_is_ready", _leads)


def _leads(self: service.PopService) -> bool:
    self._led = True
    return True


def what_is_revived_is_not_noted(patch: Patch) -> None:
    """The progress alone says what was revived (as in RocketMQ)."""
    revive_one = ReviveQueue._revive_one

    def silent(self: ReviveQueue, *arguments: object) -> bool:
        revive_one(self, *arguments)
        return False

    patch.setattr(ReviveQueue, "_revive_one", silent)


BUGS: list[Plant] = [
    acknowledgements_are_answered_at_once,
    acknowledgements_are_not_waited_for,
    hand_outs_are_forgotten,
    what_is_revived_is_not_noted,
]

"""Proposals of SyncStateSets on their way to the controller, and its responses on their way back.

A proposal may arrive late, long after its master gave up waiting; a response may be lost although
the controller agreed (R01). A response arrives only at the process that sent the request.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.ha.oracle import Oracle
from turbopump.broker.ha.ports import Agreed, DecisionUnknown, ProposalOutcome, ProposalRefused
from turbopump.engine.deferred import Deferred
from turbopump.net.ha.sync_state import Proposal

if TYPE_CHECKING:
    from tests.sim.ha.broker import Broker

# An alteration without an answer is given up.
ASK_TIMEOUT_MS = 1000


@dataclass(slots=True)
class Asked:
    """A proposal on its way to the controller or back."""

    broker: "Broker"
    life: int
    epoch: int
    proposal: Proposal
    later: Deferred[ProposalOutcome]
    since_ms: int
    response: ProposalOutcome | None = None
    is_late: bool = False
    """The answer is not waited for."""


class Proposals:
    """Pending proposals and responses."""

    def __init__(
        self,
        rng: random.Random,
        oracle: Oracle,
        now_ms: Callable[[], int],
        joined: Callable[[int], None] = lambda number: None,
    ) -> None:
        """`joined` is called with each broker that was added to the set."""
        self._joined = joined
        self._rng = rng
        self._oracle = oracle
        self._now_ms = now_ms
        self._asked: list[Asked] = []

    def ask(self, broker: "Broker", epoch: int, proposal: Proposal) -> Deferred[ProposalOutcome]:
        """A master proposes a set."""
        assert proposal.members <= set(self._oracle.brokers), f"unknown member: {proposal}"
        later: Deferred[ProposalOutcome] = Deferred()
        now_ms = self._now_ms()
        self._asked.append(Asked(broker, broker.lives, epoch, proposal, later, now_ms))
        return later

    def step(self, unreachable: set[int], *, loses: bool) -> None:
        """A proposal or its answer arrives; `loses`: half of the answers take their time."""
        for asked in [one for one in self._asked if self._is_over(one)]:
            self._give_up(asked)
        ready = [
            one
            for one in self._asked
            if one.broker.number not in unreachable and not one.broker.paused
        ]
        if not ready:
            return
        asked = ready[int(self._rng.random() * len(ready))]
        if asked.response is None:
            asked.response = self._decide(asked)
            if loses and self._rng.random() < 0.5:
                return
        if asked in self._asked:
            self._asked.remove(asked)
            self._reply(asked, asked.response)

    def lose(self) -> None:
        """Let the controller decide a proposal, and lose the response."""
        waiting = [one for one in self._asked if not one.is_late and not one.broker.paused]
        if waiting:
            asked = waiting[int(self._rng.random() * len(waiting))]
            if asked.response is None:
                self._decide(asked)
            self._asked.remove(asked)
            self._reply(asked, DecisionUnknown("the answer is lost"))

    def deliver(self) -> None:
        """Deliver all proposals and their responses."""
        for asked in list(self._asked):
            self._asked.remove(asked)
            self._reply(asked, asked.response or self._decide(asked))

    def _decide(self, asked: Asked) -> ProposalOutcome:
        before = self._oracle.role.members
        if not self._oracle.decide(asked.broker.number, asked.epoch, asked.proposal):
            return ProposalRefused("it is not the present master's, or of an old set")
        role = self._oracle.role
        for number in role.members - before:
            self._joined(number)
        return Agreed(role.members, role.set_epoch)

    def _reply(self, asked: Asked, response: ProposalOutcome) -> None:
        broker = asked.broker
        if broker.up and broker.lives == asked.life and not asked.later.done:
            broker.run(asked.later.resolve, response)
            broker.look()

    def _is_over(self, asked: Asked) -> bool:
        late = self._now_ms() - asked.since_ms > ASK_TIMEOUT_MS
        return late and not asked.is_late and not asked.broker.paused

    def _give_up(self, asked: Asked) -> None:
        """The master waits no longer; the proposal may still arrive."""
        asked.is_late = True
        if asked.response is not None or self._rng.random() < 0.5:
            self._asked.remove(asked)
        self._reply(asked, DecisionUnknown("no answer"))

"""One proposal at a time: decided on, committed and applied before the next one is decided on.

Owns the requests that wait for their turn and the proposal under way, and so that every decision
sees all earlier ones. It must never read a group's state, nor know what a decision is about: what
comes before all requests (`urgent`) is the core's. Called by core.py only; all times are of the
monotonic clock.

    enqueue -> waiting -> decide -> quorum.append -> committed -> applied -> done

An entry may still commit that was reported as failed. Then nothing is decided on until an empty
entry behind it is committed (`unsure`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from turbopump.controller import events
from turbopump.controller.elections import Decision
from turbopump.controller.events import Event
from turbopump.controller.quorum import ProposalCommitted, ProposalFailed, Quorum
from turbopump.net.wire.codes import ResponseCode

WAITING_MAX: Final = 1024
"""Proposals that wait for the one under way (RocketMQ's event queue)."""
WAIT_MS: Final = 5_000
"""Of a proposal for its turn (ControllerRequestProcessor.WAIT_TIMEOUT_OUT); brokers wait 3 s."""
NOT_LEADER: Final = "The controller is not in leader state"


@dataclass(slots=True)
class ProposalJob:
    """A request that waits for its turn, or is under way."""

    decide: Callable[[], Decision]
    done: Callable[[Decision], None]
    deadline_ms: int
    must_commit: bool = False
    body: bytes | None = None
    """Of an entry that another program made."""
    index: int = -1
    """Of the entry, once it is committed."""


@dataclass(slots=True)
class _Flight:
    """The one proposal that is not applied yet; without a job it is a barrier."""

    job: ProposalJob | None = None
    decision: Decision = field(default_factory=Decision)
    index: int | None = None


class Proposals:
    """See the module. Loop thread only."""

    def __init__(self, quorum: Quorum, urgent: Callable[[], ProposalJob | None]) -> None:
        """`urgent` gives what is to be proposed before any request, or None."""
        self.applied = -1
        """Index of the newest entry that is in the tables."""
        self.unsure = False
        """Whether an entry may still commit that was reported as failed."""
        self._quorum = quorum
        self._urgent = urgent
        self._is_open = False
        self._waiting: deque[ProposalJob] = deque()
        self._flight: _Flight | None = None
        self._pumping = False

    @property
    def under_way(self) -> tuple[Event, ...]:
        """What the proposal under way changes."""
        return () if self._flight is None else self._flight.decision.events

    def open(self) -> None:
        """The lead has begun: proposals are taken."""
        self._is_open = True

    def close(self) -> None:
        """The lead is over, or another one begins: what waits is refused."""
        refused = list(self._waiting)
        if self._flight is not None and self._flight.job is not None:
            # It may commit all the same; the broker that asked asks again and learns how it stands.
            refused.append(self._flight.job)
        self._is_open = self.unsure = False
        self._flight = None
        self._waiting.clear()
        for job in refused:
            job.done(not_leader())

    def enqueue(self, job: ProposalJob) -> None:
        """Have it decided on in its turn; it is done at once if it cannot wait for that."""
        if not self._is_open:
            job.done(not_leader())
        elif len(self._waiting) >= WAITING_MAX:
            job.done(Decision(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests wait"))
        else:
            self._waiting.append(job)
            self.pump()

    def expire(self, now_ms: int) -> None:
        """Answer what has waited too long for its turn."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            waited = f"no decision within {WAIT_MS} ms"
            self._waiting.popleft().done(Decision(ResponseCode.SYSTEM_ERROR, waited))

    def pump(self) -> None:
        """Decide and propose until a proposal is under way or nothing is left."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._flight is None and self._next():
                pass
        finally:
            self._pumping = False

    def land(self) -> None:
        """The proposal under way is done once it is committed and applied."""
        flight = self._flight
        if flight is None or flight.index is None or flight.index > self.applied:
            return
        self._flight, self.unsure = None, False
        if flight.job is not None:
            flight.job.index = flight.index
            flight.job.done(flight.decision)
        self.pump()

    def _next(self) -> bool:
        """The next thing to do; whether there was one."""
        if not self._is_open:
            return False
        if self.unsure:
            # Once an entry behind it is committed, it either was before that or never will be.
            self._launch(_Flight(), b"")
            return not self.unsure
        job = self._urgent()
        if job is None:
            if not self._waiting:
                return False
            job = self._waiting.popleft()
        decision = job.decide()
        if job.body is not None and decision.code is ResponseCode.SUCCESS:
            self._launch(_Flight(job, decision), job.body)
        elif decision.events or job.must_commit:
            self._launch(_Flight(job, decision), events.encode(decision.events))
        else:
            job.done(decision)
        return True

    def _launch(self, flight: _Flight, body: bytes) -> None:
        self._flight = flight
        self._quorum.append(body).then(lambda end: self._ended(flight, end))

    def _ended(self, flight: _Flight, end: ProposalCommitted | ProposalFailed) -> None:
        """How a proposal ended; of a lead that is over it is of no interest any more."""
        if self._flight is not flight:
            return
        if isinstance(end, ProposalCommitted):
            flight.index = end.index
            self.land()
            return
        self._flight, self.unsure = None, True
        if flight.job is not None:
            flight.job.done(
                Decision(ResponseCode.SYSTEM_ERROR, end.reason)
                if self._quorum.is_leader
                else not_leader()
            )


def not_leader() -> Decision:
    """What a controller answers that does not lead."""
    return Decision(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)

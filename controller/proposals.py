"""Proposals, one at a time: each is decided, committed and applied before the next is decided.

Owns the queue of requests and the proposal in progress, so that every decision sees all earlier
ones. It must never read a group's state, nor know the subject of a decision: proposals that precede
all requests (`urgent`) come from the core. All times are of the monotonic clock.

    enqueue -> waiting -> decide -> quorum.append -> committed -> applied -> done

An entry that was reported as failed may still commit. Then nothing is decided until an empty entry
after it is committed (`has_undecided_entry`).
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
"""Queued proposals, at most (RocketMQ's event queue)."""
WAIT_MS: Final = 5_000
"""Time that a proposal waits in the queue (ControllerRequestProcessor.WAIT_TIMEOUT_OUT); brokers
wait 3 s."""
NOT_LEADER: Final = "The controller is not in leader state"
"""Remark of a refusal because this controller does not lead (RocketMQ's text)."""


@dataclass(slots=True)
class ProposalJob:
    """A request that waits for its decision, or whose decision is being committed."""

    decide: Callable[[], Decision]
    """Called once, when all earlier proposals are applied."""
    done: Callable[[Decision], None]
    """Called once: with the decision once it is applied, or with a refusal."""
    deadline_ms: int
    """Monotonic time at which the request, if still in the queue, is refused."""
    must_commit: bool = False
    """Whether an entry is committed even for a decision without events."""
    body: bytes | None = None
    """The entry's body, if another program made it."""
    index: int = -1
    """Index of the entry, once it is applied; -1 before, and without an entry."""


@dataclass(slots=True)
class _Flight:
    """The proposal that is decided and not applied yet; without a job it is an empty entry, after
    which decisions continue."""

    job: ProposalJob | None = None
    decision: Decision = field(default_factory=Decision)
    index: int | None = None


class Proposals:
    """The queue of proposals; see the module. Loop thread only."""

    def __init__(self, quorum: Quorum, urgent: Callable[[], ProposalJob | None]) -> None:
        """`urgent` returns the next proposal that precedes all requests, or None."""
        self.applied = -1
        """Index of the newest entry that is in the tables, which the core sets; -1: none."""
        self.has_undecided_entry = False
        """Whether an entry that was reported as failed may still commit."""
        self._quorum = quorum
        self._urgent = urgent
        self._is_open = False
        self._waiting: deque[ProposalJob] = deque()
        self._flight: _Flight | None = None
        self._pumping = False

    @property
    def under_way(self) -> tuple[Event, ...]:
        """The events of the proposal that is decided and not applied yet; () without one."""
        return () if self._flight is None else self._flight.decision.events

    def open(self) -> None:
        """Accept requests in the queue, because the lead has begun."""
        self._is_open = True

    def close(self) -> None:
        """Refuse the queued requests and the request in progress with CONTROLLER_NOT_LEADER, and
        all further ones until `open`, because the lead has ended or a new lead begins."""
        refused = list(self._waiting)
        if self._flight is not None and self._flight.job is not None:
            # It may still commit; the broker repeats its request and learns the outcome.
            refused.append(self._flight.job)
        self._is_open = self.has_undecided_entry = False
        self._flight = None
        self._waiting.clear()
        for job in refused:
            job.done(not_leader())

    def enqueue(self, job: ProposalJob) -> None:
        """Add a request to the queue, and `propose_next`.

        The request is refused at once with CONTROLLER_NOT_LEADER if the queue is closed, or with
        SYSTEM_BUSY if it is full; `done` may be called before this returns.
        """
        if not self._is_open:
            job.done(not_leader())
        elif len(self._waiting) >= WAITING_MAX:
            job.done(Decision(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests wait"))
        else:
            self._waiting.append(job)
            self.propose_next()

    def refuse_expired(self, now_ms: int) -> None:
        """Drop the requests in the queue whose deadline has passed, and refuse them with
        SYSTEM_ERROR; the request in progress continues."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            waited = f"no decision within {WAIT_MS} ms"
            self._waiting.popleft().done(Decision(ResponseCode.SYSTEM_ERROR, waited))

    def propose_next(self) -> None:
        """Decide and propose until a proposal is in progress or nothing waits; `urgent` proposals
        come first. A nested call has no effect."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._flight is None and self._start_next():
                pass
        finally:
            self._pumping = False

    def finish_applied(self) -> None:
        """Call `done` of the proposal in progress if it is committed and applied, and
        `propose_next`."""
        flight = self._flight
        if flight is None or flight.index is None or flight.index > self.applied:
            return
        self._flight, self.has_undecided_entry = None, False
        if flight.job is not None:
            flight.job.index = flight.index
            flight.job.done(flight.decision)
        self.propose_next()

    def _start_next(self) -> bool:
        """Start the next proposal; return False if there is nothing to do."""
        if not self._is_open:
            return False
        if self.has_undecided_entry:
            # Once a later entry is committed, the doubtful one either is committed before it or
            # never will be.
            self._propose_body(_Flight(), b"")
            return not self.has_undecided_entry
        job = self._urgent()
        if job is None:
            if not self._waiting:
                return False
            job = self._waiting.popleft()
        decision = job.decide()
        if job.body is not None and decision.code is ResponseCode.SUCCESS:
            self._propose_body(_Flight(job, decision), job.body)
        elif decision.events or job.must_commit:
            self._propose_body(_Flight(job, decision), events.encode(decision.events))
        else:
            job.done(decision)
        return True

    def _propose_body(self, flight: _Flight, body: bytes) -> None:
        """Propose an entry with this body; the proposal is in progress now."""
        self._flight = flight
        self._quorum.append(body).then(lambda end: self._on_ended(flight, end))

    def _on_ended(self, flight: _Flight, end: ProposalCommitted | ProposalFailed) -> None:
        """Handle the end of a proposal; that of an earlier lead is ignored."""
        if self._flight is not flight:
            return
        if isinstance(end, ProposalCommitted):
            flight.index = end.index
            self.finish_applied()
            return
        self._flight, self.has_undecided_entry = None, True
        if flight.job is not None:
            flight.job.done(
                Decision(ResponseCode.SYSTEM_ERROR, end.reason)
                if self._quorum.is_leader
                else not_leader()
            )


def not_leader() -> Decision:
    """Make the decision that refuses a request with CONTROLLER_NOT_LEADER."""
    return Decision(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)

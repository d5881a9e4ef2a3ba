"""One topic of one group on its way from an assignment to the next: who holds what, and who may
take what already.

Owns the rule that a queue goes to its new owner only once the former one was answered without it,
has left, or has had its time (I18). It must never compute a share, read a clock or know a request.
Called by coordinated.py, on one thread at a time.

    begin(shares)    another assignment is to be in force
    ask(member)      what that member may have now; what it loses is free once it was answered
    leave(member)    its connection is gone, and so is all that it held
    tick()           members that did not ask in time do not hold up the others

The assignment is settled when each member was answered with exactly its share.
"""

from dataclasses import dataclass, field
from typing import Final

from turbopump.net.allocation.shares import Shares
from turbopump.net.wire.queues import MessageQueue

ROUNDS: Final = 5
"""Of notices to members that do not ask: some that share out queues by themselves never do."""
AGAIN_MS: Final = 1_000
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class _Forced:
    """A queue that was taken from a member that had not asked; `since_ms` is when another got it,
    -1 if that is still to come."""

    member: str
    since_ms: int = -1


@dataclass(slots=True)
class Settling:
    """See the module. Times are of the monotonic clock, in milliseconds.

    `overlap_ms` is the longest time for which a queue may have had two owners since `begin`,
    `unowned_ms` the longest without one, `moved` the queues that went from one to another.
    """

    shares: Shares = field(default_factory=dict)
    overlap_ms: int = 0
    unowned_ms: int = 0
    _deadline_ms: int | None = None
    _handover_ms: int = 0
    _rounds: int = 0
    _owner: dict[MessageQueue, str] = field(default_factory=dict)
    _holder: dict[MessageQueue, str] = field(default_factory=dict)
    _held: dict[str, set[MessageQueue]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _forced: dict[MessageQueue, _Forced] = field(default_factory=dict)
    _free_ms: dict[MessageQueue, int] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether every member holds its share, and nothing else."""
        return len(self._told) == len(self.shares)

    def holds_all(self, member: str) -> bool:
        """Whether a member was answered with all that is its."""
        return member in self._told

    def assume(self, shares: Shares) -> None:
        """Members hold this as far as is known: what was decided elsewhere, or before a restart."""
        self.shares = shares
        self._told.clear()
        self._deadline_ms = None
        self._held = {member: set(queues) for member, queues in shares.items()}
        self._holder = {queue: member for member, queues in shares.items() for queue in queues}

    def begin(self, shares: Shares, now_ms: int, handover_ms: int) -> None:
        """Another assignment; its queues are given out from now on, the last after `handover_ms`.
        Members that are not in it must have left."""
        self.shares = shares
        self.overlap_ms = self.unowned_ms = 0
        self._owner = {queue: member for member, queues in shares.items() for queue in queues}
        self._asked.clear()
        empty: set[MessageQueue] = set()
        self._told = {
            member
            for member, queues in shares.items()
            if len(queues) == len(held := self._held.get(member, empty)) and held.issuperset(queues)
        }
        self._holder = {queue: one for queue, one in self._holder.items() if queue in self._owner}
        self._free_ms = {
            queue: self._free_ms.get(queue, now_ms)
            for queue in self._owner
            if queue not in self._holder
        }
        self._handover_ms, self._rounds = max(handover_ms, AGAIN_MS), 0
        self._deadline_ms = None if self.is_settled else now_ms + handover_ms

    def ask(self, member: str, now_ms: int) -> tuple[list[MessageQueue], frozenset[str] | set[str]]:
        """(what that member may have now, members that are to ask again)."""
        share = self.shares.get(member)
        if share is None:
            return [], self.leave(member, now_ms)
        if member in self._told:
            return share, _NOTHING
        self._asked.add(member)
        self._overlap_ends(member, now_ms)
        held = self._held.setdefault(member, set())
        awaited = {self._release(queue, member, now_ms) for queue in held.difference(share)}
        granted = []
        for queue in share:
            holder = self._holder.setdefault(queue, member)
            if holder == member:
                self._grant(queue, now_ms)
                granted.append(queue)
        held.update(granted)
        if len(granted) == len(share):
            self._told.add(member)
        return granted, awaited & self._asked

    def leave(self, member: str, now_ms: int) -> set[str]:
        """A member is gone: nothing is its any more. Gives those that are to ask again."""
        self._overlap_ends(member, now_ms)
        self._told.discard(member)
        self._asked.discard(member)
        held = self._held.pop(member, set())
        awaited = {self._release(queue, member, now_ms) for queue in list(held)}
        return awaited & self._asked

    def is_due(self, now_ms: int) -> bool:
        """Whether `tick` has to be called."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def tick(self, now_ms: int) -> set[str]:
        """The time is over; gives those that are to ask again. What members hold that did not ask
        in time counts as free: they may go on with it until they ask, which is the overlap. Those
        get another notice, for theirs may be lost: some more times, each later than the last."""
        self._rounds += 1
        self._deadline_ms = None
        if not self.is_settled and self._rounds < ROUNDS:
            self._deadline_ms = now_ms + (self._handover_ms << self._rounds)
        late = [
            (queue, holder)
            for queue, holder in self._holder.items()
            if self._owner[queue] != holder
        ]
        awaited = set()
        for queue, holder in late:
            self._forced[queue] = _Forced(holder)
            awaited.add(self._release(queue, holder, now_ms))
        return (awaited & self._asked) | (self.shares.keys() - self._told)

    def _grant(self, queue: MessageQueue, now_ms: int) -> None:
        self.unowned_ms = max(self.unowned_ms, now_ms - self._free_ms.pop(queue, now_ms))
        forced = self._forced.get(queue)
        if forced is not None and forced.since_ms < 0:
            forced.since_ms = now_ms

    def _release(self, queue: MessageQueue, member: str, now_ms: int) -> str:
        """The member that the queue goes to, "" if none."""
        self._held.get(member, set()).discard(queue)
        owner = self._owner.get(queue, "")
        if self._holder.get(queue) == member:
            del self._holder[queue]
            if owner:
                self._free_ms[queue] = now_ms
        return owner

    def _overlap_ends(self, member: str, now_ms: int) -> None:
        ended = [queue for queue, forced in self._forced.items() if forced.member == member]
        for queue in ended:
            since_ms = self._forced.pop(queue).since_ms
            if since_ms >= 0:
                self.overlap_ms = max(self.overlap_ms, now_ms - since_ms)

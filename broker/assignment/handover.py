"""Handover of a topic's queues in a group, from an assignment to the next.

Owns the rule that a queue goes to its new owner only once the former owner was answered without it,
has left, or had its time (I18). Shares are computed elsewhere; the caller passes the time. Used by
one thread at a time.

    begin(shares)    another assignment comes into force
    ask(member)      the member's queues for now; queues that it loses are free after the answer
    leave(member)    its connection is closed, and its queues are free
    tick()           members that did not ask in time do not hold up the others

    held by the former owner --answered, left, or time passed--> free --new owner asks--> held

The assignment is settled when each member was answered with exactly its share.
"""

from dataclasses import dataclass, field
from typing import Final

from turbopump.net.allocation.shares import Shares
from turbopump.net.wire.queues import MessageQueue

NOTICE_ROUNDS_MAX: Final = 5
"""Maximum number of rounds of notices to members that do not ask: members that compute shares by
themselves never do."""
AGAIN_MS: Final = 1_000
"""Minimum of the handover time in ms that further notices are computed from: after round i the next
one follows 2^i times that time later."""
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class _Forced:
    """A queue that was taken from a member that had not asked; `since_ms` is when another member
    got it, -1 before that."""

    member: str
    since_ms: int = -1


@dataclass(slots=True)
class QueueHandover:
    """Handover of a topic's queues in a group from one assignment to the next: a queue goes to its
    new owner once its former owner was answered without it, has left, or did not ask in time (I18).

    Times are of the monotonic clock, in milliseconds. Members are client ids; `shares` is the
    assignment in force. `overlap_ms` is the longest time for which a queue may have had two owners
    since `begin_handover`, `unowned_ms` the longest time without an owner."""

    shares: Shares = field(default_factory=dict)
    overlap_ms: int = 0
    unowned_ms: int = 0
    _deadline_ms: int | None = None
    _handover_ms: int = 0
    _rounds: int = 0
    _owner: dict[MessageQueue, str] = field(default_factory=dict)
    _holder: dict[MessageQueue, str] = field(default_factory=dict)
    _held: dict[str, set[MessageQueue]] = field(default_factory=dict)
    _informed: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _forced: dict[MessageQueue, _Forced] = field(default_factory=dict)
    _free_ms: dict[MessageQueue, int] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether every member was answered with exactly its share, so that the handover has
        ended."""
        return len(self._informed) == len(self.shares)

    def holds_all(self, member: str) -> bool:
        """Whether a member was answered with its whole share."""
        return member in self._informed

    def set_held_shares(self, shares: Shares) -> None:
        """Set the assignment as already held by its members, because it was decided elsewhere or
        before a restart. No member counts as answered."""
        self.shares = shares
        self._informed.clear()
        self._deadline_ms = None
        self._held = {member: set(queues) for member, queues in shares.items()}
        self._holder = {queue: member for member, queues in shares.items() for queue in queues}

    def begin_handover(self, shares: Shares, now_ms: int, handover_ms: int) -> None:
        """Set another assignment. A queue is given to its new owner once it is free; `handover_ms`
        later `tick` is due and frees all queues. Members that are not in `shares` must have left
        (`remove_member`)."""
        self.shares = shares
        self.overlap_ms = self.unowned_ms = 0
        self._owner = {queue: member for member, queues in shares.items() for queue in queues}
        self._asked.clear()
        empty: set[MessageQueue] = set()
        self._informed = {
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

    def queues_for_member(
        self, member: str, now_ms: int
    ) -> tuple[list[MessageQueue], frozenset[str] | set[str]]:
        """Answer a member's query: return (queues that the member may have now, members that must
        ask again). Queues outside of the member's share count as free from now. A member without a
        share leaves."""
        share = self.shares.get(member)
        if share is None:
            return [], self.remove_member(member, now_ms)
        if member in self._informed:
            return share, _NOTHING
        self._asked.add(member)
        self._end_overlap(member, now_ms)
        held = self._held.setdefault(member, set())
        awaited = {self._free_queue(queue, member, now_ms) for queue in held.difference(share)}
        granted = []
        for queue in share:
            holder = self._holder.setdefault(queue, member)
            if holder == member:
                self._note_given(queue, now_ms)
                granted.append(queue)
        held.update(granted)
        if len(granted) == len(share):
            self._informed.add(member)
        return granted, awaited & self._asked

    def remove_member(self, member: str, now_ms: int) -> set[str]:
        """Remove a member and free its queues; return the members that get some of them and have
        asked already: they must ask again."""
        self._end_overlap(member, now_ms)
        self._informed.discard(member)
        self._asked.discard(member)
        held = self._held.pop(member, set())
        awaited = {self._free_queue(queue, member, now_ms) for queue in list(held)}
        return awaited & self._asked

    def is_due(self, now_ms: int) -> bool:
        """Whether the time has come, at `now_ms`, at which `tick` must be called."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def tick(self, now_ms: int) -> set[str]:
        """End the handover time: queues of members that did not ask in time count as free; they may
        use them until they ask, which is the overlap. Return the members that must ask again. Call
        it only when `is_due`: late members get further notices, at growing intervals, because one
        may be lost."""
        self._rounds += 1
        self._deadline_ms = None
        if not self.is_settled and self._rounds < NOTICE_ROUNDS_MAX:
            self._deadline_ms = now_ms + (self._handover_ms << self._rounds)
        late = [
            (queue, holder)
            for queue, holder in self._holder.items()
            if self._owner[queue] != holder
        ]
        awaited = set()
        for queue, holder in late:
            self._forced[queue] = _Forced(holder)
            awaited.add(self._free_queue(queue, holder, now_ms))
        return (awaited & self._asked) | (self.shares.keys() - self._informed)

    def _note_given(self, queue: MessageQueue, now_ms: int) -> None:
        """Note that a queue is given to its owner: its time without an owner ends, and if it was
        forced, its overlap begins."""
        self.unowned_ms = max(self.unowned_ms, now_ms - self._free_ms.pop(queue, now_ms))
        forced = self._forced.get(queue)
        if forced is not None and forced.since_ms < 0:
            forced.since_ms = now_ms

    def _free_queue(self, queue: MessageQueue, member: str, now_ms: int) -> str:
        """Free a queue; return the member to which it goes, "" if none."""
        self._held.get(member, set()).discard(queue)
        owner = self._owner.get(queue, "")
        if self._holder.get(queue) == member:
            del self._holder[queue]
            if owner:
                self._free_ms[queue] = now_ms
        return owner

    def _end_overlap(self, member: str, now_ms: int) -> None:
        """End the overlap of all queues that were forced from `member`, which has asked or left;
        `overlap_ms` grows."""
        ended = [queue for queue, forced in self._forced.items() if forced.member == member]
        for queue in ended:
            since_ms = self._forced.pop(queue).since_ms
            if since_ms >= 0:
                self.overlap_ms = max(self.overlap_ms, now_ms - since_ms)

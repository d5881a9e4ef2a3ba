"""The order of actions around a disk: what may be done now, and what waits.

Owns the queues of a member's actions. It must never do one. Called by the driver, and by the
simulator, which has its own disk.

Persist, then speak: what is said stands behind the durable actions that it rests on, in one of
three queues, so that a slow disk costs no leader the lead and a vote one sync:

* Terms and votes, what asks for votes and answers, heartbeats and their answers. They wait for the
  term and the vote before them and for nothing of the log: a vote is given for what the candidate
  says it has, which is no less than what the voter has, written or not. A member that starts again
  keeps what a heartbeat's answer may have promised (core.py).
* All else: entries, pushes, snapshots, what is applied. They wait for each other, and for the term
  that was raised before them.
* What is asked before a candidate raises its term, and the answer: neither is a vote, nor waits.

Terms are written before the log, alone: so a vote waits for one write that is under way.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from turbopump.controller.raft.actions import Action, Answer, Call, SaveTerm
from turbopump.controller.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
)
from turbopump.controller.raft.storage import DURABLE, Durable


class Order:
    """See the module's text."""

    def __init__(self) -> None:
        self._free: deque[Action] = deque()
        self._votes: deque[Action] = deque()
        self._log: deque[tuple[int, Action]] = deque()
        """Each with the number of terms that are to be saved before it."""
        self._terms = self._saved_terms = 0
        self._written_terms = self._written = 0
        """So many of the first terms, or of what is durable of the log, are on the disk."""

    def __len__(self) -> int:
        return len(self._free) + len(self._votes) + len(self._log)

    def add(self, actions: Iterable[Action]) -> None:
        """More of them."""
        for action in actions:
            if is_free(action):
                self._free.append(action)
            elif isinstance(action, SaveTerm):
                self._terms += 1
                self._votes.append(action)
            elif rests_on_terms_only(action):
                self._votes.append(action)
            else:
                self._log.append((self._terms, action))

    def next(self) -> Action | None:
        """The next one to be done; None if there is none, or all wait for the disk."""
        if self._free:
            return self._free.popleft()
        while self._votes:
            action = self._votes[0]
            if not isinstance(action, SaveTerm):
                return self._votes.popleft()
            if not self._written_terms:
                break
            self._written_terms -= 1
            self._saved_terms += 1
            self._votes.popleft()
        while self._log:
            terms, action = self._log[0]
            if terms > self._saved_terms:
                return None
            if isinstance(action, Durable):
                if not self._written:
                    return None
                self._written -= 1
                self._log.popleft()
                continue
            return self._log.popleft()[1]
        return None

    def batch(self) -> list[Durable]:
        """What is to be written next: to write early what is said later is safe, and one sync
        serves many."""
        terms: list[Durable] = [one for one in self._votes if isinstance(one, SaveTerm)]
        return terms or [action for _, action in self._log if isinstance(action, DURABLE)]

    def wrote(self, batch: Sequence[Durable]) -> None:
        """That is done: the first ones of a batch, or all."""
        if isinstance(batch[0], SaveTerm):
            self._written_terms += len(batch)
        else:
            self._written += len(batch)

    def clear(self) -> None:
        """Nothing is to be done any more."""
        for queue in (self._free, self._votes, self._log):
            queue.clear()


def is_free(action: Action) -> bool:
    """Whether it is asked, or said, of a vote that is not given yet."""
    message = action.message if isinstance(action, Call | Answer) else None
    return isinstance(message, VoteRequest | VoteResponse) and message.pre_vote is not None


def rests_on_terms_only(action: Action) -> bool:
    """Whether it promises nothing of the log."""
    message = action.message if isinstance(action, Call | Answer) else None
    return isinstance(message, VoteRequest | VoteResponse | HeartBeatRequest | HeartBeatResponse)

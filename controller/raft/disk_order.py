"""The order of actions around a disk: which are possible now, and which must wait.

Owns the queues of a member's actions. It must never perform one. The simulator uses it with its own
disk.

Persist, then send: a message waits for the durable actions that it depends on, in one of three
queues. So a slow disk does not cost a leader its lead, and a vote needs only one sync:

* Terms and votes, vote requests and answers, heartbeats and their answers. They wait for the term
  and the vote before them, but not for the log: a vote depends on the candidate's reported log,
  which is no shorter than the voter's, written or not. A member that starts again keeps the
  promises that its heartbeat answers may have made (core.py).
* All others: entries, pushes, snapshots, applies. They wait for each other, and for the term that
  was raised before them.
* Pre-vote requests and answers: these are no votes, and do not wait.

Terms are written separately, before the log, so a vote waits for at most one write in progress.

Tests: tests/unit/controller/test_driver.py
"""

from collections import deque
from collections.abc import Iterable, Sequence

from turbopump.controller.raft.actions import Action, Call, Response, SaveTerm
from turbopump.controller.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
)
from turbopump.controller.raft.storage import DURABLE, Durable


class DiskOrder:
    """The queues of a member's actions: actions that may be performed now, and those that wait for
    a durable write. The user performs the actions of `next_action`, writes the actions of
    `next_batch` to the disk, and reports them to `on_written`."""

    def __init__(self) -> None:
        self._free: deque[Action] = deque()
        self._votes: deque[Action] = deque()
        self._log: deque[tuple[int, Action]] = deque()
        """Pairs (number of terms to be saved before the action, action)."""
        self._terms = self._saved_terms = 0
        self._written_terms = self._written = 0
        """Numbers of the first terms, and of the first durable actions of the log, that are on the
        disk."""

    def __len__(self) -> int:
        return len(self._free) + len(self._votes) + len(self._log)

    def add(self, actions: Iterable[Action]) -> None:
        """Queue actions, in the order of `Raft.take_actions`; each waits for the earlier writes
        that it depends on."""
        for action in actions:
            if waits_for_no_write(action):
                self._free.append(action)
            elif isinstance(action, SaveTerm):
                self._terms += 1
                self._votes.append(action)
            elif waits_for_terms_only(action):
                self._votes.append(action)
            else:
                self._log.append((self._terms, action))

    def next_action(self) -> Action | None:
        """Remove and return the next action that may be performed now, never a durable one; None if
        the queues are empty or wait for the disk."""
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

    def next_batch(self) -> list[Durable]:
        """Return the queued durable actions to write next, in order; they remain queued until
        `on_written`. [] if nothing is queued.

        Terms and votes come first, alone. Writing actions early is safe, and one sync serves many.
        """
        terms: list[Durable] = [one for one in self._votes if isinstance(one, SaveTerm)]
        return terms or [action for _, action in self._log if isinstance(action, DURABLE)]

    def on_written(self, batch: Sequence[Durable]) -> None:
        """Record that the actions of the last `batch` are durable, so that `next_action` continues
        after them."""
        if isinstance(batch[0], SaveTerm):
            self._written_terms += len(batch)
        else:
            self._written += len(batch)

    def drop_actions(self) -> None:
        """Drop all queued actions; a write in progress must not be reported afterwards."""
        for queue in (self._free, self._votes, self._log):
            queue.clear()


def waits_for_no_write(action: Action) -> bool:
    """Whether the action sends a pre-vote or its answer, which waits for no write."""
    message = action.message if isinstance(action, Call | Response) else None
    return isinstance(message, VoteRequest | VoteResponse) and message.pre_vote is not None


def waits_for_terms_only(action: Action) -> bool:
    """Whether the action sends a vote, a heartbeat or an answer to one: it waits for terms only."""
    message = action.message if isinstance(action, Call | Response) else None
    return isinstance(message, VoteRequest | VoteResponse | HeartBeatRequest | HeartBeatResponse)

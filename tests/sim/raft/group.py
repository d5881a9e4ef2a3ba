"""A group of members of the quorum in one process: actions are done at once, and messages wait in
`flying` until they are delivered.

For unit tests, transcripts and the suite, which has another network and real disks.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from turbopump.controller.raft import actions as acts
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.log import Entry, Log
from turbopump.controller.raft.member_state import Restored
from turbopump.controller.raft.messages import RESPONSES, RaftMessage, decode, encode
from turbopump.controller.raft.options import RaftOptions

START_MS = 1_000_000


@dataclass(slots=True)
class Flying:
    """A request on its way, or its answer."""

    source: str
    target: str
    call: int
    message: RaftMessage
    is_response: bool = False

    def __str__(self) -> str:
        return f"{self.source}->{self.target} {type(self.message).__name__}"


@dataclass
class Kept:
    """State of a member on its disk."""

    restored: Restored = field(default_factory=Restored)
    lives: int = 0

    def do(self, action: acts.Action) -> None:
        kept = self.restored
        log = kept.log = kept.log or Log()
        if isinstance(action, acts.SaveTerm):
            kept.term, kept.vote = action.term, action.vote
        elif isinstance(action, acts.AppendEntries):
            log.append_entries(action.entries)
        elif isinstance(action, acts.TruncateFrom):
            log.truncate_from(action.index)
        elif isinstance(action, acts.SaveSnapshot):
            kept.snapshot = action.snapshot
            kept.log = Log(action.base, action.entries)

    def again(self) -> Restored:
        """State that the next life reads."""
        log = self.restored.log or Log()
        self.lives += 1
        return Restored(
            self.restored.term,
            self.restored.vote,
            Log(log.base, log.entries()),
            self.restored.snapshot,
            is_new=self.lives == 1,
        )


class Machine:
    """A state machine: all bodies that were applied, with their indexes."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []
        self.last = -1
        self.leads = False

    def apply(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            assert entry.index == self.last + 1, f"{entry.index} applied after {self.last}"
            self.last = entry.index
            self.applied.append((entry.index, entry.body))

    def snapshot(self) -> bytes:
        return repr(self.applied).encode()

    def load(self, index: int, data: bytes) -> None:
        self.applied = eval(data)
        self.last = index


class Group:
    """Members n0, n1, ...; nothing moves by itself."""

    def __init__(self, count: int = 3, seed: int = 1, **options: Any) -> None:
        self.now_ms = START_MS
        self.rng = random.Random(seed)
        self.peers = {f"n{number}": f"host:{9000 + number}" for number in range(count)}
        self.changes = options
        self.own_options: dict[str, dict[str, Any]] = {}
        self.disks = {peer: Kept() for peer in self.peers}
        self.machines: dict[str, Machine] = {}
        self.rafts: dict[str, Raft] = {}
        self.flying: list[Flying] = []
        self.responses: dict[object, RaftMessage] = {}
        self.cut: set[tuple[str, str]] = set()
        """Directions in which everything is lost."""
        self.wire_check = True
        for peer in self.peers:
            self.start(peer)

    def start(self, peer: str) -> None:
        """Start a member's process from the state of its disk."""
        options = RaftOptions(
            self_id=peer, peers=self.peers, **{**self.changes, **self.own_options.get(peer, {})}
        )
        self.machines[peer] = Machine()
        self.rafts[peer] = Raft(options, self.disks[peer].again(), self.rng, self.now_ms)
        self.do(peer)

    def stop(self, peer: str) -> None:
        """Stop a member's process."""
        del self.rafts[peer]
        self.flying = [
            one
            for one in self.flying
            if not (one.target == peer and one.is_response) and one.source != peer
        ]

    def do(self, peer: str) -> None:
        """Do all actions of a member."""
        raft = self.rafts[peer]
        while found := raft.take_actions():
            for action in found:
                self._do(peer, raft, action)

    def _do(self, peer: str, raft: Raft, action: acts.Action) -> None:
        machine = self.machines[peer]
        if isinstance(action, acts.Call):
            self.flying.append(
                Flying(peer, action.peer_id, action.call, self._wire(action.message))
            )
        elif isinstance(action, acts.Response):
            if isinstance(action.token, tuple):
                source, call = action.token
                self.flying.append(Flying(peer, source, call, self._wire(action.message), True))
            else:
                self.responses[action.token] = action.message
        elif isinstance(action, acts.Apply):
            machine.apply(action.entries)
        elif isinstance(action, acts.LoadSnapshot):
            machine.load(action.index, action.data)
        elif isinstance(action, acts.TakeSnapshot):
            assert machine.last == action.index
            raft.on_snapshot(action.index, machine.snapshot(), self.now_ms)
        elif isinstance(action, acts.Settle):
            action.later.resolve(action.outcome)
        elif isinstance(action, acts.BecameLeader):
            machine.leads = True
        elif isinstance(action, acts.LostLead):
            machine.leads = False
        else:
            self.disks[peer].do(action)

    def _wire(self, message: RaftMessage) -> RaftMessage:
        """Encode and decode a message, as the other side reads it."""
        again = decode(type(message), encode(message)) if self.wire_check else message
        assert again == message, f"{message} reads as {again}"
        return again

    def deliver(self, at: int = 0) -> Flying:
        """Deliver one message, by default the oldest."""
        flying = self.flying.pop(at)
        raft = self.rafts.get(flying.target)
        if (flying.source, flying.target) in self.cut or raft is None:
            if not flying.is_response:
                self._fail(flying.source, flying.target, flying.call)
            else:
                self._fail(flying.target, flying.source, flying.call)
        elif flying.is_response:
            raft.on_response(flying.source, flying.call, flying.message, self.now_ms)
            self.do(flying.target)
        else:
            raft.on_request(flying.message, (flying.source, flying.call), self.now_ms)
            self.do(flying.target)
        return flying

    def _fail(self, peer: str, other: str, call: int) -> None:
        if peer in self.rafts:
            self.rafts[peer].on_response(other, call, None, self.now_ms)
            self.do(peer)

    def settle(self, steps: int = 1000) -> None:
        """Deliver until no messages are left."""
        while self.flying:
            steps -= 1
            assert steps > 0, f"they talk for ever: {self.flying[0]}"
            self.deliver()

    def tick(self, ms: int = 10, settle: bool = True) -> None:
        """Time passes, in steps as a driver has it."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 10)
            for peer in list(self.rafts):
                if peer in self.rafts:
                    self.rafts[peer].on_tick(self.now_ms)
                    self.do(peer)
            if settle:
                self.settle()

    def ask(self, peer: str, message: RaftMessage) -> RaftMessage | None:
        """A client's request, and the answer if there is one now."""
        token = f"token {len(self.responses)}"
        self.rafts[peer].on_request(message, token, self.now_ms)
        self.do(peer)
        return self.responses.get(token)

    def append(self, peer: str, body: bytes) -> Any:
        """Propose an entry."""
        later = self.rafts[peer].append(body, self.now_ms)
        self.do(peer)
        return later

    @property
    def leaders(self) -> list[str]:
        """Names of all members that lead."""
        return [peer for peer, raft in self.rafts.items() if raft.is_leader]

    def elect(self, limit_ms: int = 30_000) -> str:
        """Let time pass until one leads."""
        end_ms = self.now_ms + limit_ms
        while len(self.leaders) != 1 or self.rafts[self.leaders[0]].term < max(
            raft.term for raft in self.rafts.values()
        ):
            assert self.now_ms < end_ms, "no member leads"
            self.tick()
        return self.leaders[0]


def response_kind(message: RaftMessage) -> type[RaftMessage]:
    """The kind of the answer."""
    return RESPONSES[type(message)]

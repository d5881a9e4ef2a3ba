"""Invariants of a quorum of controllers: Raft-1 to Raft-10 (docs/INVARIANTS.md) and the lease.

Apart from the suite, so that it can be tested against planted bugs. Of a member's own state it
reads only the term, role, log and commit index.
"""

import zlib
from dataclasses import dataclass, field

from turbopump.controller.raft.log import Entry, Log


def chained(state: int, entry: Entry) -> int:
    """State of a machine after an entry; it depends on every entry that was ever applied."""
    return zlib.crc32(b"%d %d %s" % (entry.index, entry.term, entry.body), state)


@dataclass(slots=True)
class Reign:
    """A member that leads, as it was seen last."""

    term: int
    end: int
    end_term: int
    committed: int


@dataclass(slots=True)
class History:
    """Everything that members ever reported."""

    leaders: dict[int, str] = field(default_factory=dict)
    votes: dict[tuple[str, int], str] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    entries: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    """(index, term): the body and the term of the entry before."""
    committed: list[Entry] = field(default_factory=list)
    """Committed entries by index."""
    committed_in: list[int] = field(default_factory=list)
    """Newest term of the member that first reported each entry as committed."""
    states: list[int] = field(default_factory=list)
    """State of a machine after each entry."""
    leader_terms: dict[str, Reign] = field(default_factory=dict)

    def tells_term(self, name: str, term: int) -> None:
        """Raft-2: a member that named a term never names an earlier one, whatever happened."""
        last = self.terms.get(name, 0)
        assert term >= last, f"Raft-2: {name} is back in term {term}, it was in {last}"
        self.terms[name] = term

    def votes_for(self, name: str, term: int, candidate: str) -> None:
        """Raft-3: one vote in a term."""
        known = self.votes.setdefault((name, term), candidate)
        assert known == candidate, (
            f"Raft-3: {name} votes for {known} and {candidate} in term {term}"
        )

    def appends(self, name: str, before: int | None, entries: tuple[Entry, ...]) -> None:
        """Raft-5: index and term identify an entry, and through the entry before it all
        before it.
        """
        for entry in entries:
            found = (entry.body, before)
            known = self.entries.setdefault((entry.index, entry.term), found)
            assert known == found, (
                f"Raft-5: {name} has {found} at {entry.index} of term {entry.term}, others {known}"
            )
            before = entry.term

    def cuts(self, name: str, cut: tuple[Entry, ...]) -> None:
        """Raft-9: an entry that a member applied is never truncated."""
        for entry in cut:
            if entry.index < len(self.committed):
                assert self.committed[entry.index] != entry, (
                    f"Raft-9: {name} cuts entry {entry.index}, which is committed"
                )

    def applies(self, name: str, state: int, entry: Entry, term: int) -> int:
        """Raft-7: all apply the same; the new state of the machine."""
        state = chained(state, entry)
        if entry.index == len(self.committed):
            self.committed.append(entry)
            self.committed_in.append(term)
            self.states.append(state)
        assert entry.index < len(self.committed), f"Raft-7: {name} applies {entry.index} too early"
        assert self.committed[entry.index] == entry, (
            f"Raft-7: {name} applies {entry}, another member {self.committed[entry.index]}"
        )
        assert self.states[entry.index] == state, (
            f"Raft-7: {name} has another state at {entry.index}"
        )
        return state

    def leads(self, name: str, term: int, log: Log, committed: int) -> None:
        """Raft-1, Raft-4, Raft-6, Raft-8: of a member that leads now."""
        known = self.leaders.setdefault(term, name)
        assert known == name, f"Raft-1: {known} and {name} lead in term {term}"
        reign = self.leader_terms.get(name)
        if reign is None or reign.term != term:
            self._begins(name, term, log)
        else:
            kept = reign.end < log.base.index or log.term_at(reign.end) == reign.end_term
            assert log.end >= reign.end and kept, f"Raft-4: {name} cut its log while it led"
            assert committed == reign.committed or log.term_at(committed) == term, (
                f"Raft-8: {name} commits {committed} of term {log.term_at(committed)} "
                f"in term {term}"
            )
        self.leader_terms[name] = Reign(term, log.end, log.end_term, committed)

    def leads_not(self, name: str) -> None:
        """Note a member that does not lead."""
        self.leader_terms.pop(name, None)

    def _begins(self, name: str, term: int, log: Log) -> None:
        for entry in self.committed[log.base.index + 1 :]:
            if self.committed_in[entry.index] < term:
                assert log.get(entry.index) == entry, (
                    f"Raft-6: {name} leads in term {term} without entry {entry.index} of term "
                    f"{entry.term}"
                )

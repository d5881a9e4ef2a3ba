"""Transcripts of the quorum: actions and messages of its members, line by line.

A file has comments (#), commands (> and some words) and, after each command, its effects. If
playing the file gives another text, the core behaves differently. The commands:

    group COUNT [option=value]   members n0, n1, ... with empty disks; options are RaftOptions'
    log PEER TERM TERM...        a stopped or new member starts again with a log of these terms
    tick PEER [MS]               time passes for one member
    run PEER [MS]                PEER has its peers' promises of votes, and asks for the votes
    wait MS                      time passes for all, all is delivered; prints actions, no messages
    deliver [A>B]                messages under way, without their answers, or the first from A to B
    lose A>B                     the first from A to B is lost: its sender sees a failed call
    hold A>B / release           put the first message aside; deliver all messages put aside
    append PEER TEXT             propose
    stop PEER / start PEER       its process ends; starts again with the content of its disk
    gone PEER DEAD               PEER learns that DEAD's process is dead
    transfer PEER TO             hand the leadership over
    state                        a line for each member
"""

from collections.abc import Callable
from pathlib import Path

from tests.sim.raft.group import START_MS, Flying, Group
from turbopump.controller.raft import actions as acts
from turbopump.controller.raft.actions import Committed
from turbopump.controller.raft.log import Entry, Log
from turbopump.controller.raft.member_state import Restored
from turbopump.controller.raft.messages import (
    HeartBeatRequest,
    InstallSnapshotRequest,
    LeadershipTransferRequest,
    PushEntryRequest,
    PushEntryResponse,
    RaftMessage,
    RaftResponseCode,
    VoteRequest,
    VoteResponse,
)

RAFT = sorted((Path(__file__).parent / "raft").glob("*.txt"))


class TracedGroup(Group):
    """A group that reports its messages and events."""

    def __init__(self, tell: Callable[[str], None], count: int, **options: int) -> None:
        self.tell = tell
        self.speaks = True
        self.waiting: dict[tuple[str, int], RaftMessage] = {}
        super().__init__(count, **options)

    def _do(self, peer: str, raft, action: acts.Action) -> None:
        text = self._text(peer, action)
        if text and (self.speaks or not isinstance(action, acts.Call | acts.Response)):
            self.tell(f"{peer} {text}")
        super()._do(peer, raft, action)

    def _text(self, peer: str, action: acts.Action) -> str:
        match action:
            case acts.SaveTerm():
                return f"saves term {action.term}, vote {action.vote or 'none'}"
            case acts.AppendEntries():
                return f"appends {entries_text(action.entries)}"
            case acts.TruncateFrom():
                return f"cuts from {action.index} on"
            case acts.SaveSnapshot():
                at = action.snapshot.base
                first = action.base.index + 1
                return f"saves a snapshot of {at.index}/{at.term}, keeps its log from {first} on"
            case acts.LoadSnapshot():
                return f"loads the snapshot of {action.index}"
            case acts.Apply():
                return f"applies {entries_text(action.entries)}"
            case acts.Call():
                self.waiting[peer, action.call] = action.message
                return f"-> {action.peer_id} {request_text(action.message)}"
            case acts.Response():
                if not isinstance(action.token, tuple):
                    return f"answers {response_text(action.message, None)}"
                source, call = action.token
                asked = self.waiting.get((source, call))
                return f"=> {source} {response_text(action.message, asked)}"
            case acts.Settle():
                outcome = action.outcome
                if isinstance(outcome, Committed):
                    return f"tells who proposed {outcome.index} that it is committed"
                return f"tells who proposed: {outcome.code.name}"
            case acts.BecameLeader():
                return f"leads in term {action.term}"
            case acts.LostLead():
                return f"leads no more in term {action.term}"
        return ""


def entries_text(entries: tuple[Entry, ...]) -> str:
    """index/term and the body."""
    return ", ".join(
        f"{entry.index}/{entry.term}" + (f" {entry.body.decode()}" if entry.body else "")
        for entry in entries
    )


def request_text(message: RaftMessage) -> str:
    """A request in a few words."""
    match message:
        case VoteRequest():
            forced = ", handed over" if message.transfer else ""
            end = f"{message.ledger_end_index}/{message.ledger_end_term}"
            if message.pre_vote is not None:
                return f"would it vote? term {message.pre_vote}, log ends with {end}"
            return f"vote? term {message.term}, log ends with {end}{forced}"
        case HeartBeatRequest():
            return f"heartbeat, term {message.term}"
        case PushEntryRequest():
            what = entries_text(message.entries) or f"{message.pre_log_index}"
            more = f", commit {message.commit_index}" if message.commit_index >= 0 else ""
            return f"{message.type.lower()} {what}, term {message.term}{more}"
        case InstallSnapshotRequest():
            return f"snapshot of {message.last_included_index}, term {message.term}"
        case LeadershipTransferRequest():
            return f"take over from {message.take_leadership_ledger_index} on, term {message.term}"
    return type(message).__name__


def response_text(message: RaftMessage, asked: RaftMessage | None) -> str:
    """An answer in a few words."""
    if isinstance(message, VoteResponse):
        if message.pre_vote is not None:
            return f"{message.vote_result}, term {message.pre_vote} is free"
        return f"{message.vote_result}, term {message.term}"
    text = RaftResponseCode(message.code).name
    if isinstance(message, PushEntryResponse):
        text += f", log ends with {message.end_index}"
        if message.x_term is not None:
            text += f", term {message.x_term} begins with {message.x_index}"
    return f"{text} ({request_text(asked).split(',')[0]})" if asked is not None else text


class Player:
    """Runs commands and collects their results."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.group: TracedGroup
        self.held: list[Flying] = []

    def do(self, command: str) -> list[str]:
        """The lines of a command."""
        self.lines = []
        name, *words = command.split()
        getattr(self, f"do_{name}")(*words)
        return self.lines

    def do_group(self, count: str, *options: str) -> None:
        values = {key: int(value) for key, value in (one.split("=") for one in options)}
        self.group = TracedGroup(self.lines_append, int(count), **values)

    def lines_append(self, line: str) -> None:
        self.lines.append(line)

    def do_log(self, peer: str, *terms: str) -> None:
        log = Log()
        for term in terms:
            log.append_entries([log.next_entry(int(term), b"")])
        if peer in self.group.rafts:
            self.group.stop(peer)
        self.group.disks[peer].restored = Restored(log.end_term, None, log)
        self.group.start(peer)

    def do_tick(self, peer: str, ms: str = "10") -> None:
        self.group.now_ms += int(ms)
        self.group.rafts[peer].on_tick(self.group.now_ms)
        self.group.do(peer)

    def do_run(self, peer: str, ms: str = "10") -> None:
        self.group.now_ms += int(ms)
        raft = self.group.rafts[peer]
        raft.now_ms = self.group.now_ms
        raft.campaign.run(raft.campaign.wanted_term(), self.group.now_ms)
        self.group.do(peer)

    def do_wait(self, ms: str) -> None:
        self.group.speaks = False
        self.group.settle()
        self.group.tick(int(ms))
        self.group.speaks = True

    def do_deliver(self, which: str = "") -> None:
        if which:
            self.group.deliver(self._find(which))
            return
        for _ in range(len(self.group.flying)):
            self.group.deliver()

    def do_lose(self, which: str) -> None:
        flying = self.group.flying.pop(self._find(which))
        asking = flying.target if flying.is_response else flying.source
        asked = flying.source if flying.is_response else flying.target
        self.group.rafts[asking].on_response(asked, flying.call, None, self.group.now_ms)
        self.group.do(asking)

    def do_hold(self, which: str) -> None:
        self.held.append(self.group.flying.pop(self._find(which)))

    def do_release(self) -> None:
        held, self.held = self.held, []
        for flying in held:
            self.group.flying.insert(0, flying)
            self.group.deliver(0)

    def do_append(self, peer: str, text: str) -> None:
        later = self.group.append(peer, text.encode())
        if later.done and not isinstance(later.value, Committed):
            self.lines.append(f"refused: {later.value.code.name}")

    def do_stop(self, peer: str) -> None:
        self.group.stop(peer)

    def do_start(self, peer: str) -> None:
        self.group.start(peer)

    def do_gone(self, peer: str, dead: str) -> None:
        self.group.rafts[peer].on_peer_gone(dead, self.group.now_ms)
        self.group.do(peer)

    def do_transfer(self, peer: str, target: str) -> None:
        code = self.group.rafts[peer].transfer_to(target, self.group.now_ms)
        self.lines.append(code.name)
        self.group.do(peer)

    def do_state(self) -> None:
        self.lines.append(f"{self.group.now_ms - START_MS} ms")
        for peer, raft in self.group.rafts.items():
            log = raft.member.log
            quorum = ", has a quorum" if raft.has_quorum(self.group.now_ms) else ""
            self.lines.append(
                f"{peer}: {raft.role.name} of term {raft.term}, leader {raft.leader_id}, log "
                f"{log.begin}..{log.end}/{log.end_term}, committed {raft.member.committed}{quorum}"
            )

    def _find(self, which: str) -> int:
        source, target = which.split(">")
        for at, flying in enumerate(self.group.flying):
            if (flying.source, flying.target) == (source, target):
                return at
        raise ValueError(f"nothing flies from {source} to {target}")


def play(text: str) -> str:
    """The transcript with the present results of its commands."""
    player = Player()
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            found.append(line)
            found += [f"  {output}" for output in player.do(line[2:])]
        elif not line.startswith("  "):
            found.append(line)
    return "\n".join(found) + "\n"

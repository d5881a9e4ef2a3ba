"""The driver over a real Raft and real files, with a disk that works when the test calls it."""

import base64
import json
import random
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from turbopump.controller.driver import PROBES, Driver, DriverDeps
from turbopump.controller.raft.core import SYNC_HANGS_MS, Raft, RaftRole
from turbopump.controller.raft.log import Entry
from turbopump.controller.raft.messages import RaftRequestCode
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.storage import RaftStorage
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.flush import Job
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response

PEERS = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}
INTERVAL_MS = 100


class _Done:
    def wait_and_report(self) -> None:
        return


class HeldDisk:
    """A disk that does its work in `finish_one`, or fails it with `error`."""

    def __init__(self) -> None:
        self.work: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self.error: OSError | None = None

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> Job:
        self.work.append((work, done))
        return _Done()

    def close(self) -> None:
        assert not self.work

    def finish_one(self) -> None:
        work, done = self.work.popleft()
        done(self.error if self.error is not None else work())


class Machine:
    """A state machine that records its inputs."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.leads: list[bool] = []
        self.restored = b""
        self.driver: Any = None

    def on_applied(self, entry: Entry) -> None:
        self.applied.append(entry.body)

    def on_leader(self, leads: bool) -> None:
        self.leads.append(leads)

    def snapshot(self) -> bytes:
        return b"|".join(self.applied)

    def restore(self, data: bytes) -> None:
        if data == b"bad":
            raise ValueError("bad")
        self.restored = data

    def append(self, body: bytes, now_ms: int) -> Deferred[int | str]:
        later: Deferred[int | str] = Deferred()
        if body == b"no":
            later.resolve("not this")
        else:
            self.driver.append(body).then(lambda outcome: later.resolve(outcome.index))
        return later


class Member:
    """A driver with its storage, disk and state machine."""

    def __init__(self, folder: Path, peers: dict[str, str] = PEERS, **options: Any) -> None:
        self.now_ms = 1_000
        self.disk = HeldDisk()
        self.machine = Machine()
        self.calls: list[tuple[str, Command, Deferred[Command | str]]] = []
        self.probed: list[Deferred[bool]] = []
        self.failures: list[OSError] = []
        self.storage = RaftStorage(RealFiles(), str(folder))
        restored = self.storage.open()
        wanted = RaftOptions(
            self_id="n0",
            peers=peers,
            group="g",
            heart_beat_time_interval_ms=INTERVAL_MS,
            min_vote_interval_ms=10,
            max_vote_interval_ms=20,
            vote_wait_ms=INTERVAL_MS,
            **options,
        )
        self.raft = Raft(wanted, restored, random.Random(1), self.now_ms)
        self.driver = Driver(
            DriverDeps(
                raft=self.raft,
                storage=self.storage,
                disk=self.disk,
                calls=self._call,
                refuses=self._refuses,
                now_ms=lambda: self.now_ms,
                failed=self.failures.append,
            )
        )
        self.machine.driver = self.driver
        self.driver.begin_member(self.machine, self.now_ms)

    def _call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        later: Deferred[Command | str] = Deferred()
        self.calls.append((address, request, later))
        return later

    def _refuses(self, address: str) -> Deferred[bool]:
        assert address in PEERS.values()
        self.probed.append(Deferred())
        return self.probed[-1]

    def tick(self, by_ms: int = 10) -> None:
        self.now_ms += by_ms
        self.driver.on_tick(self.now_ms)

    def settle(self) -> None:
        """Let the disk do all queued work."""
        while self.disk.work:
            self.disk.finish_one()

    def lead(self) -> None:
        """Tick until this member, the only one of its group, is the leader."""
        for _ in range(100):
            self.tick()
            self.settle()
            if self.driver.is_leader:
                return
        raise AssertionError("it does not lead")

    def run(self) -> None:
        """Answer pre-votes with ACCEPT, so that the member votes for itself."""
        for _ in range(20):
            asked, self.calls = self.calls, []
            for address, request, later in asked:
                body = json.loads(bytes(request.body))
                assert "preVote" in body, address
                reply = {**body, "voteResult": "ACCEPT"}
                later.resolve(new_response(request, 200, body=json.dumps(reply).encode()))
            if self.disk.work:
                return
            self.tick()
        raise AssertionError("it does not run")

    def ask(self, code: int, **members: Any) -> Command | Deferred[Command | None]:
        """Send a request of peer n1, the leader of term 3."""
        body = {"group": "g", "remoteId": "n0", "localId": "n1", "leaderId": "n1", "term": 3}
        request = new_request(code, body=json.dumps({**body, **members}).encode())
        return self.driver.on_request(1, request, self.now_ms)

    def follow(self) -> None:
        """Make n1 the leader in term 3."""
        for _ in range(10):
            response = self.ask(RaftRequestCode.HEART_BEAT)
            self.settle()
            self.tick()
            if _body(response)["code"] == 200:
                return
        raise AssertionError("it does not follow")


def _body(response: Command | Deferred[Command | None]) -> dict[str, Any]:
    if isinstance(response, Deferred):
        value = response.value
        assert value is not None
        response = value
    return json.loads(bytes(response.body))  # type: ignore[arg-type]


def alone(folder: Path, **options: Any) -> Member:
    member = Member(folder, {"n0": "h:1"}, **options)
    member.lead()
    return member


def test_nothing_is_said_before_it_is_durable(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.run()
    assert not member.calls, "it asks for votes, and may forget its own"
    member.settle()
    assert [call[0] for call in member.calls] == ["h:2", "h:3"]
    response = member.ask(RaftRequestCode.HEART_BEAT)  # its term is higher and must be saved
    assert isinstance(response, Deferred)
    assert not response.done
    member.settle()
    assert response.done
    member.storage.close()
    assert RaftStorage(RealFiles(), str(tmp_path)).open().term == 3


def test_a_vote_survives_its_answer(tmp_path: Path) -> None:
    member = Member(tmp_path)
    vote = {"leaderId": "n1", "ledgerEndIndex": -1, "ledgerEndTerm": -1}
    response = member.ask(RaftRequestCode.VOTE, **vote)
    assert isinstance(response, Deferred)
    assert not response.done
    member.settle()
    assert _body(response)["voteResult"] == "ACCEPT"
    member.storage.close()
    again = Member(tmp_path)
    again.tick(INTERVAL_MS * 10)  # late enough that it may vote again
    other = again.ask(RaftRequestCode.VOTE, **{**vote, "leaderId": "n2", "localId": "n2"})
    again.settle()
    assert _body(other)["voteResult"] == "REJECT_ALREADY_VOTED"


def agree(member: Member) -> None:
    """Answer all pending requests to the peers with success."""
    asked, member.calls = member.calls, []
    for _, request, later in asked:
        parsed: dict[str, Any] = {**json.loads(bytes(request.body)), "code": 200}
        if request.code == RaftRequestCode.VOTE:
            parsed["voteResult"] = "ACCEPT"
        later.resolve(new_response(request, 200, body=json.dumps(parsed).encode()))


def leading(folder: Path) -> Member:
    """The leader of a group of three, with its first entry committed."""
    member = Member(folder)
    member.run()
    for _ in range(20):
        member.settle()
        agree(member)
        if member.driver.is_leader and not member.calls:
            return member
        member.tick()
    raise AssertionError("it does not lead")


def test_heartbeats_of_a_leader_leave_while_its_log_is_written(tmp_path: Path) -> None:
    member = leading(tmp_path)
    member.driver.append(b"x")
    assert member.disk.work
    member.tick(INTERVAL_MS)
    assert [(call[0], call[1].code) for call in member.calls] == [
        ("h:2", RaftRequestCode.HEART_BEAT),
        ("h:3", RaftRequestCode.HEART_BEAT),
    ], "and the entry is not sent before it is on the disk"
    member.settle()
    assert RaftRequestCode.PUSH in [call[1].code for call in member.calls]


def test_a_follower_answers_heartbeats_while_its_log_is_written(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.follow()
    entry = {"index": 0, "term": 3, "pos": 0, "size": 48 + 1, "body": "eA=="}
    pushed = member.ask(RaftRequestCode.PUSH, type="TRUNCATE", entry=entry, preLogIndex=-1)
    assert isinstance(pushed, Deferred) and not pushed.done and member.disk.work
    assert _body(member.ask(RaftRequestCode.HEART_BEAT))["code"] == 200
    assert not pushed.done
    # A new term is answered only once it is on the disk.
    later_term = member.ask(RaftRequestCode.HEART_BEAT, term=4)
    assert isinstance(later_term, Deferred) and not later_term.done
    member.settle()
    assert pushed.done and later_term.done


def test_a_vote_waits_for_its_own_sync_only(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.follow()
    entry = {"index": 0, "term": 3, "pos": 0, "size": 48 + 1, "body": "eA=="}
    pushed = member.ask(RaftRequestCode.PUSH, type="TRUNCATE", entry=entry, preLogIndex=-1)
    vote = member.ask(
        RaftRequestCode.VOTE,
        leaderId="n2",
        localId="n2",
        term=4,
        ledgerEndIndex=9,
        ledgerEndTerm=3,
        transfer=True,
    )
    more = member.ask(RaftRequestCode.PUSH, type="COMMIT")
    assert (
        isinstance(pushed, Deferred) and isinstance(vote, Deferred) and isinstance(more, Deferred)
    )
    member.disk.finish_one()  # the append in progress
    assert not vote.done
    before = member.storage.syncs
    member.disk.finish_one()
    assert _body(vote)["voteResult"] == "ACCEPT"
    assert member.storage.syncs - before == 1
    member.settle()
    assert pushed.done and more.done


def test_a_question_before_an_election_waits_for_nothing(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.follow()
    member.tick(INTERVAL_MS * 4)
    member.calls.clear()
    assert member.driver.leader_id is None
    member.ask(RaftRequestCode.HEART_BEAT, term=5)
    assert member.disk.work, "a term waits"
    member.tick(1)
    asked = {"leaderId": "n1", "term": -1, "ledgerEndIndex": -1, "ledgerEndTerm": -1}
    response = _body(member.ask(RaftRequestCode.VOTE, **asked, preVote=4))
    assert (response["voteResult"], response["preVote"]) == ("REJECT_EXPIRED_VOTE_TERM", 5)
    response = _body(member.ask(RaftRequestCode.VOTE, **asked, preVote=5))
    assert (response["voteResult"], response["preVote"]) == ("ACCEPT", 5)
    member.settle()
    assert member.raft.member.vote is None, "it was a question"


def test_a_leader_whose_sync_hangs_gives_the_lead_up_and_may_have_it_again(tmp_path: Path) -> None:
    member = leading(tmp_path)
    member.driver.append(b"x")
    for _ in range(SYNC_HANGS_MS // INTERVAL_MS - 1):
        member.tick(INTERVAL_MS)
        agree(member)
        assert member.raft.leading is not None
    member.tick(INTERVAL_MS)
    assert member.raft.leading is None
    assert not member.driver.is_leader
    member.calls.clear()
    member.tick(INTERVAL_MS * 10)
    assert not member.calls, "it does not ask to be elected either"
    member.settle()
    member.tick(INTERVAL_MS * 10)
    member.tick()
    assert member.calls, "the disk is back"


def test_how_long_syncs_take_is_told(tmp_path: Path) -> None:
    member = alone(tmp_path)
    member.driver.append(b"x")
    member.now_ms += 800
    member.disk.finish_one()
    assert member.raft.member.sync_ms == 800
    for _ in range(60):
        member.driver.append(b"y")
        member.disk.finish_one()
    assert member.raft.member.sync_ms < 50, "it is forgotten little by little"


def test_entries_of_one_moment_cost_one_write(tmp_path: Path) -> None:
    member = alone(tmp_path)
    result = [member.driver.append(b"%d" % number) for number in range(10)]
    assert len(member.disk.work) == 1
    member.disk.finish_one()  # the first; the others came while it was written
    assert [one.done for one in result] == [True] + [False] * 9
    assert len(member.disk.work) == 1
    member.disk.finish_one()
    assert [one.value.index for one in result] == list(range(1, 11))  # type: ignore[union-attr]
    assert member.machine.applied == [b"", *(b"%d" % number for number in range(10))]


def test_the_state_of_a_snapshot_comes_back(tmp_path: Path) -> None:
    member = alone(tmp_path, snapshot_threshold=5, snapshot_keep=1)
    for number in range(20):
        member.driver.append(b"%d" % number)
        member.settle()
    member.storage.close()
    again = alone(tmp_path)
    found = [*again.machine.restored.split(b"|"), *again.machine.applied]
    assert [one for one in found if one] == [b"%d" % number for number in range(20)]


def test_a_disk_that_fails_ends_it(tmp_path: Path) -> None:
    member = alone(tmp_path)
    assert member.machine.leads == [True]
    result = member.driver.append(b"lost")
    member.disk.error = OSError(28, "No space left on device")
    member.disk.finish_one()
    assert member.failures == [member.disk.error]
    assert member.machine.leads == [True, False]
    assert not member.driver.is_leader
    assert not member.driver.has_quorum(member.now_ms)
    assert not result.done
    member.tick(10_000)
    assert (list(member.disk.work), member.calls) == ([], [])
    response = member.ask(RaftRequestCode.METADATA)
    assert isinstance(response, Command)
    assert response.code == ResponseCode.SYSTEM_ERROR


def test_a_disk_that_hangs_costs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.controller.driver.QUEUE_MAX", 20)
    member = Member(tmp_path)
    member.run()
    responses = [member.ask(RaftRequestCode.METADATA) for _ in range(50)]
    busy = [one for one in responses if isinstance(one, Command)]
    assert {one.code for one in busy} == {ResponseCode.SYSTEM_BUSY}
    assert 25 < len(busy) < 50
    for _ in range(100):
        member.tick(100)
    assert not member.calls
    member.settle()
    assert all(one.done for one in responses if isinstance(one, Deferred))
    assert isinstance(member.ask(RaftRequestCode.METADATA), Deferred)


def test_a_snapshot_that_is_none_ends_it(tmp_path: Path) -> None:
    member = alone(tmp_path, snapshot_threshold=2, snapshot_keep=1)
    member.machine.snapshot = lambda: b"bad"  # type: ignore[method-assign]
    for number in range(5):
        member.driver.append(b"%d" % number)
        member.settle()
    member.storage.close()
    again = Member(tmp_path, {"n0": "h:1"})
    assert "snapshot of entry" in str(again.failures[0])


def test_answers_that_cannot_be_read_count_as_none(tmp_path: Path) -> None:
    member = Member(tmp_path)
    for _ in range(100):
        member.tick()
        member.settle()
        if member.calls:
            break
    seen = len(member.calls)
    for _address, request, later in member.calls[:]:
        assert request.code == RaftRequestCode.VOTE
        later.resolve(new_response(request, 200, body=b"[]"))
    member.tick(1_000)
    member.settle()
    assert len(member.calls) > seen
    assert not member.driver.is_leader


def test_bytes_that_are_no_message_are_refused(tmp_path: Path) -> None:
    member = Member(tmp_path)
    request = new_request(RaftRequestCode.PUSH, body=b"{")
    response = member.driver.on_request(1, request, member.now_ms)
    assert isinstance(response, Command)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "PushEntryRequest" in (response.remark or "")


def test_a_long_snapshot_is_read_in_steps(tmp_path: Path) -> None:
    """Reading the snapshot at once would block the loop for 90 ms."""
    member = Member(tmp_path)
    member.follow()
    data = base64.b64encode(b"[" + b"0," * (1 << 20) + b"0]").decode()
    body = {"lastIncludedIndex": 1 << 40, "lastIncludedTerm": 1, "data": data}
    steps = member.ask(RaftRequestCode.INSTALL_SNAPSHOT, **body)
    assert isinstance(steps, Generator)
    response = run_to_result(steps)
    assert isinstance(response, Command | Deferred)
    steps = member.ask(RaftRequestCode.INSTALL_SNAPSHOT, **{**body, "data": f"{data}?"})
    assert isinstance(steps, Generator)
    refused = run_to_result(steps)
    assert isinstance(refused, Command)
    assert refused.code == ResponseCode.SYSTEM_ERROR


def test_a_long_push_is_read_in_steps(tmp_path: Path) -> None:
    """Reading 10,000 entries at once would block the loop for 38 ms."""
    member = Member(tmp_path)
    member.follow()
    entries = [{"index": n, "term": 1, "pos": 48 * n, "size": 48} for n in range(5_000)]
    steps = member.ask(RaftRequestCode.PUSH, type="APPEND", batchEntry=entries)
    assert isinstance(steps, Generator)
    assert isinstance(run_to_result(steps), Command | Deferred)
    steps = member.ask(RaftRequestCode.PUSH, type="APPEND", batchEntry=[*entries, {}])
    assert isinstance(steps, Generator)
    refused = run_to_result(steps)
    assert isinstance(refused, Command)
    assert refused.code == ResponseCode.SYSTEM_ERROR


def test_entries_unknown_to_the_machine_are_not_appended(tmp_path: Path) -> None:
    member = alone(tmp_path)
    refused = member.ask(RaftRequestCode.APPEND, body="bm8=", term=-1)
    assert isinstance(refused, Deferred)
    assert refused.value is not None
    assert (_body(refused)["code"], refused.value.remark) == (411, "not this")
    taken = member.ask(RaftRequestCode.APPEND, body="eWVz", term=-1)
    member.settle()
    assert _body(taken)["code"] == 200
    assert member.machine.applied == [b"", b"yes"]


def test_a_leader_that_is_killed_is_missed_at_once(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.follow()
    member.driver.on_closed(7, member.now_ms)  # the connection of a different peer
    assert not member.probed
    member.driver.on_closed(1, member.now_ms)
    assert len(member.probed) == 1
    member.probed[0].resolve(False)  # the peer's process is not dead, or not yet
    assert member.raft.role is RaftRole.FOLLOWER
    member.tick(50)
    assert len(member.probed) == 2
    member.probed[1].resolve(True)
    assert member.raft.role is RaftRole.CANDIDATE


def test_a_leader_whose_host_answers_is_waited_for(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.follow()
    member.driver.on_closed(1, member.now_ms)
    for _ in range(20):
        member.tick(50)
        member.ask(RaftRequestCode.HEART_BEAT)
        for probe in member.probed:
            if not probe.done:
                probe.resolve(False)
    assert len(member.probed) == PROBES
    assert member.raft.role is RaftRole.FOLLOWER


@pytest.mark.parametrize("code", [RaftRequestCode.METADATA, RaftRequestCode.GET])
def test_strangers_are_told_so(code: RaftRequestCode, tmp_path: Path) -> None:
    member = alone(tmp_path)
    assert _body(member.ask(code, group="other"))["code"] == 400
    assert _body(member.ask(code, remoteId="n9"))["code"] == 401

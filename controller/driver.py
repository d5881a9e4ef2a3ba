"""Performs the actions that Raft decides, in order: first durable writes, then messages.

Owns the write in progress, the duration of syncs, and DLedger's frames. It must never know a loop,
a socket or a clock (`now_ms` is given), nor the meaning of an entry: the machine knows it. The
simulator replaces sockets, clock and disk.

Persist, then send (raft/disk_order.py). When the disk is free, all durable actions of the queue are
written together. The duration of a sync, complete or in progress, is reported to Raft: timeouts
that depend on other members' disks must not expire before these can have answered. A disk that
fails ends the driver: the durable state of term, vote and log is unknown afterwards, so this member
sends nothing more, and the others continue without it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from turbopump.controller.raft.actions import (
    Action,
    Apply,
    BecameLeader,
    Call,
    LoadSnapshot,
    LostLead,
    Outcome,
    Response,
    Settle,
    TakeSnapshot,
)
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.disk_order import DiskOrder
from turbopump.controller.raft.log import Entry
from turbopump.controller.raft.messages import (
    IN_STEPS,
    REQUESTS,
    RESPONSES,
    SMALL_MAX,
    AppendEntryRequest,
    AppendEntryResponse,
    MessageError,
    RaftMessage,
    decode,
    encode,
    request_code,
)
from turbopump.controller.raft.messages import RaftResponseCode as LedgerCode
from turbopump.controller.raft.options import BODY_MAX
from turbopump.controller.raft.storage import Durable, RaftStorage
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.flush import Disk
from turbopump.net.transport.calls import Call as PeerCall
from turbopump.net.transport.dispatcher import Response as Reply
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response

logger = logging.getLogger(__name__)

LEDGER_CODES: Final = frozenset(REQUESTS)
"""Request codes of DLedger's protocol that `Driver.on_request` handles."""

CALL_TIMEOUT_MS: Final = 3_000
"""Timeout of each request to another member of the quorum (DLedgerRpcNettyService)."""

CLIENT_BODY_MAX: Final = BODY_MAX
"""Bytes of an entry that a client appends, at most: DLedger's limit (DLedgerConfig's 4 MiB)."""

CLIENT_OPEN_MAX: Final = 16 << 20
"""Bytes of all client entries that are queued or in progress, at most."""

QUEUE_MAX: Final = 10_000
"""Actions that wait for a disk, at most: beyond, requests are refused and ticks skipped."""

PROBES: Final = 5
"""Probes of a suspected leader's host, at most."""
PROBE_INTERVAL_MS: Final = 40
"""Interval of these probes: the kernel may need PROBES intervals to close all sockets of a killed
process."""


class Machine(Protocol):
    """The state machine to which the log is applied; the driver calls it on the loop thread."""

    def on_applied(self, entry: Entry) -> None:
        """Apply the next committed entry: called once per entry and process, in order of index."""

    def on_leader(self, leads: bool) -> None:
        """Start leading, with all entries of earlier leaders applied (True), or stop (False)."""

    def snapshot(self) -> bytes:
        """Encode the state after all applied entries, for `restore`."""

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot. Raises ValueError if `data` is malformed."""

    def append(self, body: bytes, now_ms: int) -> Deferred[int | str]:
        """Append a DLedger client's entry at `now_ms` of the monotonic clock.

        Resolved with the entry's index once it is applied, or with the reason of a failure.
        """


@dataclass(slots=True)
class SuspectedLeader:
    """A leader whose connection closed, so that its process may be dead."""

    due_ms: int
    """Monotonic time of the next probe of its host."""
    probes_left: int = PROBES
    """Further probes before the leader is no longer suspected."""


@dataclass(slots=True, frozen=True, kw_only=True)
class DriverDeps:
    """The objects that a Driver works with: Raft, storage, disk, calls, probe and clock."""

    raft: Raft
    storage: RaftStorage
    """The opened files; only `disk` uses them."""
    disk: Disk
    """Runs the durable writes, one at a time."""
    calls: PeerCall
    """Sends a request to a peer's `host:port`."""
    refuses: Callable[[str], Deferred[bool]]
    """Connects to a `host:port`; True if the host refuses, because no process listens there."""
    now_ms: Callable[[], int]
    """The monotonic clock in ms."""
    failed: Callable[[OSError], None] = lambda _error: None
    """Called once, on the loop, when a write failed or a snapshot is malformed; the driver has
    ended then."""


class Driver:
    """A member of the quorum, for the machine and the node. Loop thread only.

    `now_ms` arguments are of the same monotonic clock as `DriverDeps.now_ms`.
    """

    def __init__(self, parts: DriverDeps) -> None:
        self._raft = parts.raft
        self._storage = parts.storage
        self._disk = parts.disk
        self._calls = parts.calls
        self._refuses = parts.refuses
        self._now_ms = parts.now_ms
        self._failed = parts.failed
        self._machine: Machine
        self._order = DiskOrder()
        self._connections: dict[int, str] = {}
        self._suspects: dict[str, SuspectedLeader] = {}
        self._client_open = 0
        self._writing = False
        self._write_began_ms = self._sync_began_ms = 0
        self._syncs_before = self._syncs_seen = 0
        self._running = False
        self._ended = False
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and every earlier committed entry is applied here."""
        return self._leads and self._raft.is_leader

    @property
    def leader_id(self) -> str | None:
        """Id of the current term's leader; None if unknown."""
        return self._raft.leader_id

    @property
    def term(self) -> int:
        """The current term, which may not be saved yet."""
        return self._raft.term

    @property
    def peers(self) -> Mapping[str, str]:
        """`host:port` of each member by id."""
        return self._raft.peers

    def has_quorum(self, now_ms: int) -> bool:
        """Whether this member leads at `now_ms`, and its followers' promises exclude any other
        leader."""
        return self._leads and self._raft.has_quorum(now_ms)

    def append(self, body: bytes) -> Deferred[Outcome]:
        """Propose an entry with this body, of at most BODY_MAX bytes, as the leader.

        Resolved with Committed once the entry is applied here, or with Failed, maybe at once. It
        may run other queued actions of the machine before it returns.
        """
        later = self._raft.append(body, self._now_ms())
        self._run()
        return later

    def transfer_leadership(self, now_ms: int) -> str | None:
        """Ask the live follower with the longest log to lead; return its id.

        Returns before the outcome is known. None, without effect, if this member does not lead, or
        if no follower can take over.
        """
        leading = self._raft.leading
        if leading is None or not self.is_leader:
            return None
        taker = min(leading.live_peers(), key=leading.entries_behind, default=None)
        if taker is None or self._raft.transfer_to(taker, now_ms) is not LedgerCode.SUCCESS:
            return None
        self._run()
        return taker

    def begin_member(self, machine: Machine, now_ms: int) -> None:
        """Restore the machine from the last snapshot, if there is one, then take part in the
        quorum. Call it once, before all other methods."""
        self._machine = machine
        self.on_tick(now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Advance the time, about every 20 ms: elections, heartbeats, timeouts, probes, disk watch.

        Only the disk is watched while QUEUE_MAX actions wait for it.
        """
        if self._ended:
            return
        self._watch_disk(now_ms)
        if len(self._order) >= QUEUE_MAX:
            return
        self._raft.on_tick(now_ms)
        self._run()
        for peer_id, suspect in list(self._suspects.items()):
            if now_ms >= suspect.due_ms:
                self._probe_leader(peer_id, suspect, now_ms)

    def on_closed(self, connection: int, now_ms: int) -> None:
        """Handle the close of the connection with this number, which `on_request` got, too.

        If the leader used it, its host is probed up to PROBES times: if the leader was killed,
        followers need not wait for its heartbeat timeout, but a connection may close for other
        reasons.
        """
        peer_id = self._connections.pop(connection, None)
        if peer_id is not None and peer_id == self.leader_id and not self._ended:
            self._suspects[peer_id] = SuspectedLeader(now_ms)
            self._probe_leader(peer_id, self._suspects[peer_id], now_ms)

    def on_request(self, connection: int, request: Command, now_ms: int) -> Reply | Steps[Reply]:
        """Handle a request of a peer or of a DLedger client, with a code of LEDGER_CODES.

        Returns the answer, a Deferred of it (resolved after the durable writes it depends on), or
        for a long body Steps that decode it first. A request that cannot be decoded is answered
        with code 1 (SYSTEM_ERROR), and SYSTEM_BUSY means that the disk hangs or that clients'
        entries exceed CLIENT_OPEN_MAX.
        """
        kind, body = REQUESTS[request.code], bytes_of(request)
        if kind in IN_STEPS and len(body) > SMALL_MAX:
            return self._read_in_steps(connection, request, IN_STEPS[kind](body))
        try:
            message = decode(kind, body)
        except MessageError as error:
            return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        return self._on_message(connection, request, message, now_ms)

    def _read_in_steps(
        self, connection: int, request: Command, steps: Steps[RaftMessage]
    ) -> Steps[Reply]:
        """Handle a request whose long body the `steps` decode."""
        try:
            message = yield from steps
        except MessageError as error:
            return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        return self._on_message(connection, request, message, self._now_ms())

    def _on_message(
        self, connection: int, request: Command, message: RaftMessage, now_ms: int
    ) -> Command | Deferred[Command | None]:
        """Handle a decoded request: give it to Raft, or append a client's entry."""
        if self._ended:
            return new_response(request, ResponseCode.SYSTEM_ERROR, "the controller's disk failed")
        peer_id = message.local_id
        if peer_id is not None and peer_id in self.peers:
            self._connections[connection] = peer_id
        if len(self._order) >= QUEUE_MAX:
            return new_response(request, ResponseCode.SYSTEM_BUSY, "the controller's disk hangs")
        response: Deferred[Command | None] = Deferred()
        if isinstance(message, AppendEntryRequest) and self._is_to_leader(message):
            return self._append(request, message, now_ms)
        self._raft.on_request(message, (request, response), now_ms)
        self._run()
        return response

    def _append(
        self, request: Command, message: AppendEntryRequest, now_ms: int
    ) -> Command | Deferred[Command | None]:
        """Append a DLedger client's entry after earlier entries; refused with SYSTEM_BUSY if
        unanswered clients' entries exceed CLIENT_OPEN_MAX."""
        body = message.body or b""
        size = len(body)
        if size > CLIENT_BODY_MAX:
            return self._append_answer(request, message, f"an entry over {CLIENT_BODY_MAX} bytes")
        if self._client_open + size > CLIENT_OPEN_MAX:
            waits = (
                f"entries of {self._client_open} bytes are waiting, the limit is {CLIENT_OPEN_MAX}"
            )
            return new_response(request, ResponseCode.SYSTEM_BUSY, waits)
        response: Deferred[Command | None] = Deferred()
        message = replace(message, body=None)  # only `append` keeps the body, while needed
        self._client_open += size

        def answer_client(outcome: int | str) -> None:
            self._client_open -= size
            response.resolve(self._append_answer(request, message, outcome))

        self._machine.append(body, now_ms).then(answer_client)
        return response

    def drop_actions(self) -> None:
        """Drop all queued actions, and send nothing further; cannot be undone.

        A write in progress is completed on its disk thread. Appends and requests without an answer
        never get one.
        """
        self._ended = True
        self._order.drop_actions()

    def _run(self) -> None:
        """Perform all actions that are possible now, and their consequences."""
        if self._running:
            return
        self._running = True
        try:
            while not self._ended:
                found = self._raft.take_actions()
                has_done = bool(found)
                self._order.add(found)
                while (next_one := self._order.next_action()) is not None:
                    self._perform_action(next_one)
                    has_done = True
                if not has_done and not self._write():
                    return
        finally:
            self._running = False

    def _write(self) -> bool:
        """Give the durable actions to the disk; return whether they are done already."""
        batch = self._order.next_batch()
        if self._writing or not batch:
            return False
        self._writing = True
        self._write_began_ms = self._sync_began_ms = self._now_ms()
        self._syncs_before = self._syncs_seen = self._storage.syncs
        self._disk.submit(
            partial(self._storage.perform_actions, batch),
            lambda error: self._on_written(batch, error),
        )
        return not self._writing

    def _on_written(self, batch: Sequence[Durable], error: OSError | None) -> None:
        """Handle the end of a disk write: report its durable actions and its duration, or end this
        member after an error."""
        self._writing = False
        if self._ended:
            return
        if error is not None:
            self._end_failed(error)
            return
        syncs = max(1, self._storage.syncs - self._syncs_before)
        self._raft.on_synced((self._now_ms() - self._write_began_ms) // syncs)
        self._order.on_written(batch)
        self._run()

    def _watch_disk(self, now_ms: int) -> None:
        """Report the duration of the sync in progress; a write may have several syncs."""
        if not self._writing:
            return
        if self._storage.syncs != self._syncs_seen:
            self._syncs_seen, self._sync_began_ms = self._storage.syncs, now_ms
        self._raft.on_sync_waits(now_ms - self._sync_began_ms, now_ms)

    def _end_failed(self, error: OSError) -> None:
        """End this member, because its disk or its snapshot failed, and report the error."""
        logger.error("the controller's disk failed, so it leaves the quorum: %s", error)
        led, self._leads = self._leads, False
        self.drop_actions()
        if led:
            self._machine.on_leader(False)
        self._failed(error)

    def _perform_action(self, action: Action) -> None:
        """Perform an action that is not durable."""
        match action:
            case Call():
                self._send_call(action)
            case Response():
                request, later = _request_and_answer(action.token)
                later.resolve(
                    new_response(request, LedgerCode.SUCCESS, body=encode(action.message))
                )
            case Apply():
                for entry in action.entries:
                    self._machine.on_applied(entry)
            case Settle():
                action.later.resolve(action.outcome)
            case BecameLeader() | LostLead():
                self._leads = isinstance(action, BecameLeader)
                logger.info(
                    "the lead is %s, term %d", "won" if self._leads else "lost", action.term
                )
                self._machine.on_leader(self._leads)
            case TakeSnapshot():
                self._raft.on_snapshot(action.index, self._machine.snapshot(), self._now_ms())
            case LoadSnapshot():
                self._load_snapshot(action)
            case _:
                raise AssertionError(f"{action} is done by the disk")

    def _load_snapshot(self, action: LoadSnapshot) -> None:
        """Restore the machine from a leader's snapshot; a malformed one ends this member."""
        try:
            self._machine.restore(action.data)
        except ValueError as error:
            self._end_failed(OSError(f"the snapshot of entry {action.index} is malformed: {error}"))

    def _send_call(self, call: Call) -> None:
        """Send a request to a peer; the answer, or the failure, goes to Raft."""
        request = new_request(request_code(call.message), body=encode(call.message))
        response = self._calls(self.peers[call.peer_id], request, CALL_TIMEOUT_MS)
        response.then(partial(self._on_response, call))

    def _on_response(self, call: Call, response: Command | str) -> None:
        """Give a peer's answer to Raft; a text is the reason of a failed call."""
        if self._ended:
            return
        message: RaftMessage | None = None
        if isinstance(response, str):
            logger.debug("no answer from %s: %s", call.peer_id, response)
        else:
            try:
                message = decode(RESPONSES[type(call.message)], bytes_of(response))
            except MessageError as error:
                logger.warning("the answer of %s is malformed: %s", call.peer_id, error)
        self._raft.on_response(call.peer_id, call.call, message, self._now_ms())
        self._run()

    def _probe_leader(self, peer_id: str, suspect: SuspectedLeader, now_ms: int) -> None:
        """Probe the host of a leader, several times.

        A dying process may close its port later than its connections.
        """
        if peer_id != self.leader_id or suspect.probes_left == 0:
            self._suspects.pop(peer_id, None)
            return
        suspect.probes_left -= 1
        suspect.due_ms = now_ms + PROBE_INTERVAL_MS
        self._refuses(self.peers[peer_id]).then(partial(self._on_probed, peer_id))

    def _on_probed(self, peer_id: str, refused: bool) -> None:
        """Handle the end of a probe of a leader's host: if it refused the connection, the
        leader is dead."""
        if refused and self._suspects.pop(peer_id, None) is not None and not self._ended:
            logger.info("leader %s is dead: its host refuses connections", peer_id)
            self._raft.on_peer_gone(peer_id, self._now_ms())
            self._run()

    def _is_to_leader(self, message: AppendEntryRequest) -> bool:
        """Whether this leader must append the entry; Raft refuses other requests."""
        options = self._raft.options
        meant = (message.group, message.remote_id) == (options.group, options.self_id)
        return meant and self.is_leader and bool(message.body)

    def _append_answer(
        self, request: Command, message: AppendEntryRequest, outcome: int | str
    ) -> Command:
        """Make the answer to a DLedger client's append from its outcome: the entry's index, or the
        reason of a failure."""
        code, remark, entry = LedgerCode.SUCCESS, None, None
        if isinstance(outcome, int):
            entry = self._raft.read(outcome)
        else:
            code = LedgerCode.UNEXPECTED_ARGUMENT if self.is_leader else LedgerCode.NOT_LEADER
            remark = outcome
        response = AppendEntryResponse(
            code=code,
            group=message.group,
            leader_id=self.leader_id,
            local_id=message.local_id,
            remote_id=message.remote_id,
            term=entry.term if entry is not None else self._raft.term,
            index=entry.index if entry is not None else -1,
            pos=entry.pos if entry is not None else -1,
        )
        return new_response(request, LedgerCode.SUCCESS, remark, body=encode(response))


def bytes_of(command: Command) -> bytes:
    """Return the body of a received command. A body that is not decoded is a programmer error."""
    assert isinstance(command.body, bytes), "a decoded body is bytes"
    return command.body


def _request_and_answer(token: object) -> tuple[Command, Deferred[Command | None]]:
    """The (request, Deferred of its answer) that `on_request` passed to Raft as the token."""
    assert isinstance(token, tuple), "a token is what on_request handed in"
    return token

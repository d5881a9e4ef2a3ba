"""The controller without its shell: requests, heartbeats and committed entries in, answers out.

Owns the tables, the times at which a group is checked without a request, and the notices to
brokers. The answers to requests are in requests.py, their order in proposals.py. It must never
touch a socket, a file or a clock, nor know how the log is kept (quorum.py). The node and the
simulation make the same calls:

    on_request   answers at once (heartbeats, reads) or when the proposal is applied
    on_tick      expires silent brokers and waiting requests; checks groups without a master
    on_closed    probes the hosts of brokers that used the connection
    on_applied   applies each committed entry, on every controller, in order
    on_leader    begins or ends the lead

How soon a master is replaced: at once if its connection closes and its port refuses a new one
(kill -9); death_probe.py knows the other cases. Its lease may still be valid then, and that is
safe: an acknowledgement needs every member of the SyncStateSet, the new master is a member, and it
cuts every earlier connection when its term begins. If the master is silent, it is replaced after
its whole heartbeat timeout, counted from the ARRIVAL of its last heartbeat here or from the start
of this lead. Its lease is 0.8 of that, counted from when the heartbeat was SENT, and a leader that
may be deposed grants none. So the master has stopped by itself before another can be elected (R27).
The first lease of a master's term is granted after an entry that records it (`BeginMasterTerm`):
until then nothing is acknowledged in the term, and the former members are candidates.
"""

import logging
from collections.abc import Callable

from turbopump.controller import dledger_append_rules, elections, events, registration
from turbopump.controller.config import ControllerConfig
from turbopump.controller.death_probe import DeathProbes, Probed, assume_refused
from turbopump.controller.elections import Decision
from turbopump.controller.events import BadEvent, ElectMaster, Event
from turbopump.controller.liveness import HEARTBEAT_TIMEOUT_MS, Heartbeats, Key, LivenessAt, key_of
from turbopump.controller.proposals import WAIT_MS, ProposalJob, Proposals
from turbopump.controller.quorum import Quorum, QuorumEntry
from turbopump.controller.replicas_info import Reply
from turbopump.controller.requests import NO_TERM, ControllerRequests
from turbopump.controller.state import Group, GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.command import Command

logger = logging.getLogger(__name__)


class ControllerCore:
    """The controller's core; see the module. Loop thread only; times are of the monotonic clock."""

    def __init__(
        self,
        config: ControllerConfig,
        quorum: Quorum,
        notices: Callable[[str, Command], None] = lambda address, command: None,
        probe: Callable[[str], Deferred[Probed]] = assume_refused,
    ) -> None:
        """`config` may change at any time.

        `notices` sends a one-way request to a broker's address and returns at once; `probe`
        connects to it.
        """
        self.config = config
        self.quorum = quorum
        self.notices = notices
        self.tables = GroupTables()
        """State after the entry `applied`; `restore` replaces the object."""
        self.heartbeats = Heartbeats(HEARTBEAT_TIMEOUT_MS, lambda k: self.tables.has_broker(*k))
        self.death_probes = DeathProbes(
            probe, self.heartbeats.is_disconnected, self._on_process_dead
        )
        self.is_leading = False
        """Whether this node decides: it leads, and has applied every entry from before its lead."""
        self.elections = 0
        """Number of masters elected while this node led, since the start of the process."""
        self.now_ms = LONG_AGO_MS
        """Time of the newest event that had a time."""
        self.proposals = Proposals(quorum, self._next_group)
        self._attention: dict[str, None] = {}
        self._looked_ms = LONG_AGO_MS
        self._scanned_ms = LONG_AGO_MS
        self._lead_is_new = False
        self._led_term = NO_TERM
        """The last term in which this controller led."""
        self._requests = ControllerRequests(self)

    # Events

    def on_request(self, connection: int, request: Command, now_ms: int) -> Reply:
        """Answer a request with a code of requests.CODES; see ControllerRequests.answer_request.

        `connection` is the number that `on_closed` gets later.
        """
        self._set_time(now_ms)
        return self._requests.answer_request(connection, request)

    def on_closed(self, connection: int, now_ms: int) -> None:
        """Handle a closed connection: probe the hosts of brokers that sent heartbeats over it.

        A broker that never registered has no address, and nothing depends on it, so it counts as
        dead.
        """
        self._set_time(now_ms)
        for key in self.heartbeats.on_closed(connection):
            if self.tables.has_broker(*key):
                address = self.tables.groups[key[1]].replicas[key[2]].address
                self.death_probes.add(key, address, now_ms)
            else:
                self.heartbeats.record_death(key, now_ms)

    def _on_process_dead(self, key: Key) -> None:
        """Record that a probe found a broker's process dead, and have its group checked."""
        if self.heartbeats.record_death(key, self.now_ms):
            self._log_dead(
                [key], "is dead: its connection closed, and its port refuses connections"
            )
            self.proposals.propose_next()

    def on_tick(self, now_ms: int) -> None:
        """Advance the time, at least every 100 ms, whether this node leads or not.

        Finds silent brokers, expires waiting requests, and proposes decisions that are due.
        """
        self.heartbeats.on_tick(now_ms)
        self._set_time(now_ms)
        self.death_probes.on_tick(now_ms)
        judged_ms = self.heartbeats.judged_ms
        if judged_ms - self._looked_ms >= self.config.scan_not_active_broker_interval_ms:
            self._looked_ms = judged_ms
            self._log_dead(
                self.heartbeats.remove_expired(now_ms),
                "is dead: no heartbeat came within its timeout",
            )
        if (
            self.is_leading
            and judged_ms - self._scanned_ms >= self.config.scan_inactive_master_interval_ms
        ):
            self._scanned_ms = judged_ms
            self._attention.update(dict.fromkeys(self.tables.groups))
        self.proposals.refuse_expired(now_ms)
        self.proposals.propose_next()

    def on_leader(self, leads: bool) -> None:
        """Begin a lead, with all earlier entries applied, or end it.

        All queued requests are refused with CONTROLLER_NOT_LEADER. A lead begins with the next
        event that has a time.
        """
        self.is_leading = self._lead_is_new = leads
        self._attention.clear()
        self.proposals.close()

    def on_applied(self, entry: QuorumEntry) -> None:
        """Apply a committed entry; every controller receives each one, in order of index.

        An entry that cannot be decoded is logged and changes nothing. The leader notifies brokers,
        answers the entry's request, and decides the next one.
        """
        self.proposals.applied = entry.index
        happened = events.decode(entry.body)
        if isinstance(happened, BadEvent):
            logger.error("entry %d changes nothing: %s", entry.index, happened.reason)
            happened = ()
        for event in happened:
            self.tables.apply_event(event)
            if isinstance(event, ElectMaster):
                self.heartbeats.on_elected(event.broker_name, self.now_ms)
        if self.is_leading:
            self._notify_brokers(happened)
        self.proposals.finish_applied()

    # The tables as a whole

    @property
    def applied(self) -> int:
        """Index of the newest entry that is in the tables; -1 before the first one."""
        return self.proposals.applied

    def snapshot(self) -> bytes:
        """Encode the tables as of `applied`, for `restore`."""
        return self.tables.snapshot()

    def restore(self, data: bytes) -> None:
        """Load the tables of a snapshot. Raises ValueError, and changes nothing then."""
        self.tables = GroupTables.restore(data)

    def append(self, body: bytes, now_ms: int) -> Deferred[int | str]:
        """Append an entry that another program made (APPEND of DLedger's clients).

        It waits in the queue of proposals, like a request. Resolved with the entry's index once it
        is applied, or with the reason of a refusal.
        """
        self._set_time(now_ms)
        decided: Deferred[Decision] = Deferred()
        job = ProposalJob(
            lambda: dledger_append_rules.judge_entry(self.tables, body),
            decided.resolve,
            now_ms + WAIT_MS,
            body=body,
        )
        self.proposals.enqueue(job)
        return decided.map(lambda one: job.index if job.index >= 0 else one.remark or one.code.name)

    # Groups, and the lead

    @property
    def is_undisputed_leader(self) -> bool:
        """Whether this controller leads and cannot have been deposed meanwhile."""
        return self.is_leading and self.quorum.has_quorum(self.now_ms)

    def _next_group(self) -> ProposalJob | None:
        """Return the proposal for the next group that needs one; it precedes all requests."""
        while self._attention and self.quorum.has_quorum(self.now_ms):
            name, _ = self._attention.popitem()
            decision = elections.decide_without_request(
                self.tables,
                name,
                self.liveness_at(),
                unclean=self.config.enable_elect_unclean_master,
            )
            if decision is not None:
                return self._group_job(name, decision)
        return None

    def _group_job(self, name: str, decision: Decision) -> ProposalJob:
        """Wrap a decision on the group `name`, which no request asked for, as a proposal
        that must commit."""
        return ProposalJob(
            lambda: decision,
            lambda outcome: self._on_altered(name, outcome),
            self.now_ms,
            must_commit=True,
        )

    def _set_time(self, now_ms: int) -> None:
        """Set the time of the event in progress; if a lead has been won, start it now."""
        self.now_ms = now_ms
        if self._lead_is_new:
            self._lead_is_new = False
            self.proposals.open()
            if not self.quorum.is_leader or self.quorum.term != self._led_term + 1:
                self.heartbeats.begin_lead(
                    now_ms
                )  # else no other leader granted a lease in between
            self._led_term = self.quorum.term if self.quorum.is_leader else NO_TERM
            self._start_lead()

    def _start_lead(self) -> None:
        """Check all groups, and notify masters again.

        The last leader may have failed before it notified them.
        """
        logger.info(
            "this controller became the leader, with %d broker groups", len(self.tables.groups)
        )
        for name, group in self.tables.groups.items():
            self._attention[name] = None
            if group.master_id is not None:
                self._notify(group)

    # Brokers

    def liveness_at(self) -> LivenessAt:
        """Return the table of heartbeats as of `now_ms`, as elections use it."""
        return LivenessAt(self.heartbeats, self.now_ms)

    def record_request(self, broker_name: str, broker_id: int, connection: int) -> None:
        """Record a broker's request, received now over `connection`, as a sign of life.

        Without effect for an unregistered broker. If the broker was dead, its group is checked; see
        `recheck_group`.
        """
        group = self.tables.groups.get(broker_name)
        if group is None or broker_id not in group.replicas:
            return
        if self.heartbeats.record_request(key_of(group, broker_id), connection, self.now_ms):
            self.recheck_group(broker_name)

    def recheck_group(self, broker_name: str) -> None:
        """Have the group's master and SyncStateSet checked by the next `proposals.pump`, before any
        request is decided; decides nothing itself."""
        self._attention[broker_name] = None

    def _log_dead(self, dead: list[Key], how: str) -> None:
        """Log dead brokers; a leader checks their groups soon. `how` completes the log line."""
        for _, broker_name, broker_id in dead[:50]:  # names may be made up, 50,000 at once
            logger.warning("broker %d of %s %s", broker_id, broker_name, how)
        if self.is_leading:
            self._attention.update((key[1], None) for key in dead)

    def is_moving(self, broker_name: str) -> bool:
        """Whether that group may be about to get another master, so that no lease may be granted.

        A group that is only due for its regular check is not, or the first lease of a master's
        term would be refused at its first attempt.
        """
        if self.proposals.has_undecided_entry:
            return True
        if broker_name in self._attention:
            unclean, liveness = self.config.enable_elect_unclean_master, self.liveness_at()
            if (
                elections.decide_without_request(
                    self.tables, broker_name, liveness, unclean=unclean
                )
                is not None
            ):
                return True
        return any(
            isinstance(event, ElectMaster) and event.broker_name == broker_name
            for event in self.proposals.under_way
        )

    def _notify_brokers(self, happened: tuple[Event, ...]) -> None:
        """Notify the living brokers of a group with a new master or without a member (1008).

        So no broker has to poll. A Java broker accepts only notices with a later masterEpoch.
        """
        for event in happened:
            if not isinstance(event, ElectMaster | events.MarkUnfit):
                continue
            group = self.tables.groups.get(event.broker_name)
            if group is None:
                continue
            if group.master_id is None:
                logger.error(
                    "%s has lost its master, epoch %d", group.broker_name, group.master_epoch
                )
                continue
            if isinstance(event, ElectMaster):
                self.elections += 1
                master = group.master_epoch, group.master_id, group.master_address
                logger.warning("master of %s in epoch %d: %d (%s)", group.broker_name, *master)
            self._notify(group)

    def _on_altered(self, broker_name: str, decision: Decision) -> None:
        """Notify a master whose SyncStateSet changed without its request."""
        group = self.tables.groups.get(broker_name)
        altered = any(isinstance(event, events.AlterSyncStateSet) for event in decision.events)
        if altered and group is not None and group.master_id is not None:
            self._notify(group)

    def _notify(self, group: Group) -> None:
        """Send the group's master and SyncStateSet (1008) to its brokers with a heartbeat within
        the timeout, if notifyBrokerRoleChanged is set."""
        if not self.config.notify_broker_role_changed:
            return
        liveness = self.liveness_at()
        for broker_id, replica in group.replicas.items():
            if liveness.is_active(group, broker_id):
                self.notices(replica.address, registration.make_notice(group))

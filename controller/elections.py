"""Decisions of the leader on a group's master and SyncStateSet.

Owns the rules of alterSyncStateSet and electMaster (RocketMQ: ReplicasInfoManager,
DefaultElectPolicy), and a leader's decisions on a group without a request. It must never change a
table: a decision is an answer and the events that make it true once they are committed. Decisions
are made one at a time, each after the previous decision's events are applied.

Only a member of the SyncStateSet becomes master, because every member has all acknowledged
messages. A new master is the only member (RocketMQ), and may be dead already. So until its term
begins, before which nothing is acknowledged, the other candidates of its election remain electable.
Beyond RocketMQ, too, a member that is unfit (see events.MarkUnfit) is skipped:

    a master that became unfit                 is replaced at once
    another member, while the master lives     is taken out of the set; the master adds it again
                                               once it caught up, and that makes it fit
    all members are unfit                      the member with the longest log, once all of them
                                               live; never one with a damaged log, which takes no
                                               writes

A broker also reports with each heartbeat whether its store takes messages (`StoreHealth`): that
counts while it is reported, and is in no log.

    a master that takes none                   is replaced at once by a broker that does
    a master that is about to stop             likewise, while it still serves; it stays if there
                                               is no other
    a master whose disk is slow for senders    is replaced by a member that reports a fast disk,
                                               not before its term is SETTLED_MS old; else it stays
    a member whose disk is slow                is elected only if no fit member is available
    no store takes any, as disks are full      the master stays, or a candidate becomes master
    no store takes any, the master's failed    it cannot lead: the group has no master until a
                                               broker can; an elected broker declines this way

Controllers may know less than their brokers: they were restored from an older copy, or ordered to
remove brokers that live. Brokers report the epoch of their logs, and their roles in it.

    a log is of a later epoch than the group   no known member of the set may have it all: the
                                               master of that epoch is the next one, else the
                                               broker with the longest log, once all are here; its
                                               epoch is later than all reported ones
    all members are removed                    likewise
    a group that was removed, and is here      the longest log that is here, but never
    again                                      that of a broker outside of the set, nor before a
                                               running broker with a later epoch is registered
    a broker sent nothing since this           waited for in the first part of a lead: it may know
    controller started                         of a later epoch

An administrator's choice of a member is followed, fit or not, unless its store failed. An epoch is
raised when there is a new master or the old one is given up, and never for an outage that goes on.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turbopump.controller.events import AlterSyncStateSet, BeginMasterTerm, ElectMaster, Event
from turbopump.controller.liveness import MASTER, OUTSIDE, PRIORITY_LAST, BrokerReport, Epochs
from turbopump.controller.state import DAMAGED, Group, GroupTables
from turbopump.engine.types import StoreHealth
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.controller import ElectMasterBody, MemberGroup, SyncStateSet
from turbopump.net.wire.headers import controller as headers

EPOCH_JUMP_MAX: Final = 1_000_000
"""Greatest accepted distance of a broker's reported epoch above the group's: a made-up epoch must
not exhaust the numbers."""
NO_REQUESTER: Final = -1
"""The broker id of an election that the controller itself starts."""


class Liveness(Protocol):
    """Which brokers are alive, and their last reports, at the time of a decision; liveness.py
    defines the three kinds of life."""

    def is_active(self, group: Group, broker_id: int) -> bool:
        """Whether a heartbeat of the broker came within its timeout."""

    def has_recent_heartbeat(self, group: Group, broker_id: int) -> bool:
        """Whether a heartbeat of the broker came within FRESH_SHARE of its timeout, over an open
        connection."""

    def may_be_alive(self, group: Group, broker_id: int) -> bool:
        """Whether the broker is not known to be dead."""

    def newest_report(self, group: Group, broker_id: int) -> BrokerReport | None:
        """Return the newest report of a broker; None if the broker is dead or reported no log."""

    def last_epochs(self, group: Group, broker_id: int) -> Epochs:
        """Return the epochs that a broker reported last, alive or dead; NO_EPOCHS if it never
        did."""

    def may_tell(self, group: Group, broker_id: int) -> bool:
        """Whether a broker without a heartbeat in this young lead may yet report facts unknown
        here."""

    def unregistered_reports(self, group: Group) -> list[BrokerReport]:
        """Return recent reports of the group's running brokers that are not registered."""

    def is_young(self) -> bool:
        """Whether this controller became leader less than TELL_SHARE of the timeout ago."""

    def is_marked(self, group: Group, broker_id: int, life: int | None) -> bool:
        """Whether the tables already contain the state of the broker's log in the process
        `life`."""

    def reported_health(self, group: Group, broker_id: int) -> StoreHealth:
        """Return the health of the broker's store as reported; FIT if unknown or dead."""

    def reports_fast(self, group: Group, broker_id: int) -> bool:
        """Whether the broker reported a measured disk that is fast enough for sends."""

    def is_settled(self, group: Group) -> bool:
        """Whether the group's last master was elected at least SETTLED_MS ago."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on a request: the parts of the answer, and the events to commit and apply before
    the answer is sent."""

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    """Reason of a refusal."""
    header: Any = None
    """Header dataclass of the answer; None: no fields."""
    body: bytes = b""
    events: tuple[Event, ...] = field(default=())
    """Empty if the answer changes nothing; an answer with an error code may have events, too."""


def decide_alter(
    tables: GroupTables,
    header: headers.AlterSyncStateSetRequest,
    wanted: SyncStateSet,
    liveness: Liveness,
) -> Decision:
    """Decide on the master's request to change the SyncStateSet to `wanted.members` (1001).

    `wanted.set_epoch` is the present epoch; the answer has the next one. The checks and their order
    are RocketMQ's.
    """
    group = tables.groups.get(header.broker_name)
    if group is None:
        return _alter_refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"Broker-set: {header.broker_name} hasn't been registered in controller",
        )
    refusal = _alter_refusal(group, header, wanted, liveness)
    if refusal is not None:
        return refusal
    set_epoch = group.set_epoch + 1
    return Decision(
        header=headers.AlterSyncStateSetResponse(set_epoch),
        body=SyncStateSet(wanted.members, set_epoch).encode(),
        events=(AlterSyncStateSet(group.broker_name, wanted.members),),
    )


def _alter_refusal(
    group: Group,
    header: headers.AlterSyncStateSetRequest,
    wanted: SyncStateSet,
    liveness: Liveness,
) -> Decision | None:
    """The refusal of a change of the SyncStateSet, checked in RocketMQ's order; None if
    it is allowed."""
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    rejecting = "Rejecting alter syncStateSet request because"
    if wanted.members == group.members and not header.fence:
        return _alter_refused(
            failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update it"
        )
    if group.master_id is None or group.master_id != header.master_broker_id:
        return _alter_refused(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{rejecting} the current leader is:{{{_java_text(group.master_id)}}}, "
            f"not {{{header.master_broker_id}}}",
        )
    if group.master_epoch != header.master_epoch:
        return _alter_refused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{rejecting} the current master epoch is:{{{group.master_epoch}}}, "
            f"not {{{header.master_epoch}}}",
        )
    if group.set_epoch != wanted.set_epoch or group.unfit_members:
        # With an unfit member the set is about to change, and the master's view is older.
        return _alter_refused(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{rejecting} the current syncStateSet epoch is:{{{group.set_epoch}}}, "
            f"not {{{wanted.set_epoch}}}",
        )
    for member in sorted(wanted.members):
        if member not in group.replicas:
            return _alter_refused(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{rejecting} the replicas {{{member}}} don't exist",
            )
        if not liveness.is_active(group, member):
            return _alter_refused(
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"{rejecting} the replicas {{{member}}} don't alive",
            )
    if group.master_id not in wanted.members:
        return _alter_refused(
            failed, f"{rejecting} the newSyncStateSet don't contains origin leader"
        )
    return None


def _alter_refused(code: ResponseCode, remark: str) -> Decision:
    return Decision(code, remark, headers.AlterSyncStateSetResponse())


def decide_election(
    tables: GroupTables,
    header: headers.ElectMasterRequest,
    liveness: Liveness,
    *,
    unclean: bool = False,
) -> Decision:
    """Decide on an election for a broker, an administrator, or the controller itself (1002).

    The answer names the elected master; a master that stays is CONTROLLER_MASTER_STILL_EXIST with
    its fields. If no broker can be master, or a broker may be about to report a later epoch, a
    broker's or administrator's request is refused with CONTROLLER_ELECT_MASTER_FAILED, and the
    controller's own (NO_REQUESTER) with CONTROLLER_MASTER_NOT_AVAILABLE: it records the loss of the
    master once. An unregistered broker or group: CONTROLLER_BROKER_NEED_TO_BE_REGISTERED.

    With `unclean` (enableElectUncleanMaster) a replica outside of the SyncStateSet may become
    master if no member can: acknowledged messages may be lost then.
    """
    group = tables.groups.get(header.broker_name)
    asked = header.broker_id
    if group is None or (header.cluster_name and header.cluster_name != group.cluster_name):
        return _unregistered_refusal(header.broker_name)
    if asked != NO_REQUESTER and asked not in group.replicas and header.designate_elect:
        return _no_candidate(group, asked)  # an administrator's mistake, not an unregistered broker
    if asked != NO_REQUESTER and asked not in group.replicas:
        return _unregistered_refusal(header.broker_name, asked)
    if not group.had_master and asked != NO_REQUESTER and not header.designate_elect:
        winner: int | None = _first_master(group, asked, liveness)
    else:
        wanted = asked if header.designate_elect and asked != NO_REQUESTER else None
        winner = choose_master(group, liveness, unclean=unclean, wanted=wanted)
        is_new = winner != group.master_id or is_behind(group, liveness)
        if wanted is None and is_new and is_unsure(group, liveness):
            return _no_candidate(group, asked)
    if winner is None:
        return _no_candidate(group, asked)
    if winner == group.master_id and not is_behind(group, liveness):
        return Decision(
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            f"The old master {group.master_address} has still alive, "
            "not need to elect a new broker",
            _master_of(group),
            ElectMasterBody(group.members).encode(),
        )
    event = election_event(group, winner, liveness)
    after = group.with_events(event)
    members = MemberGroup(after.cluster_name, after.broker_name, after.addresses)
    return Decision(
        header=_master_of(after),
        body=ElectMasterBody(after.members, members).encode(),
        events=(event,),
    )


def _first_master(group: Group, asked: int, liveness: Liveness) -> int | None:
    """Return the first master: the broker that asks, because nothing was ever written.

    If the group was removed and is here again, it is the broker with the longest log, which the
    others would truncate, and no broker that was outside of the set: its log may lack acknowledged
    messages. If all controllers lost their data, brokers with a later epoch may not have registered
    again yet.
    """
    fresh = [one for one in group.replicas if liveness.has_recent_heartbeat(group, one)]
    failed = _with_failed_store(group, fresh, liveness)
    newest = {one: liveness.newest_report(group, one) for one in fresh if one not in failed}
    logs = [one for one, report in newest.items() if report is not None and report.max_offset > 0]
    if not logs and liveness.may_tell(group, asked):
        return None
    may_lead = [one for one in {asked, *logs} if not _reports_outside(newest.get(one))]
    winner = (_best_candidate(group, may_lead, liveness) if may_lead else None) if logs else asked
    report = None if winner is None else newest.get(winner)
    if report is not None and report.epoch > 0 and liveness.is_young():
        return None
    knows = (-1, False) if report is None else report.data_rank
    return (
        None
        if any(one.data_rank > knows for one in liveness.unregistered_reports(group))
        else winner
    )


def is_behind(group: Group, liveness: Liveness) -> bool:
    """Whether a broker reported a later epoch, or a later set of this epoch, than the group has.

    Then the controllers lost data. Reports of dead brokers count, too; reports of Java brokers and
    made-up epochs do not.
    """
    for broker_id in group.replicas:
        epoch, set_epoch = liveness.last_epochs(group, broker_id)
        ahead = (
            set_epoch - group.set_epoch
            if epoch == group.master_epoch
            else (epoch - group.master_epoch)
        )
        if 0 < ahead <= EPOCH_JUMP_MAX:
            return True
    return False


def is_unsure(group: Group, liveness: Liveness, but: int = NO_REQUESTER) -> bool:
    """Whether a broker, other than `but`, may be about to report a later epoch than the group's.

    That is so if this lead is young and this controller received no heartbeat of the broker yet.
    """
    return any(liveness.may_tell(group, one) for one in group.replicas if one != but)


def may_have_lost_data(group: Group, liveness: Liveness) -> bool:
    """Whether these controllers lost data of the group (`is_behind`), or may have (`is_unsure`)."""
    return is_behind(group, liveness) or is_unsure(group, liveness)


def _master_of_unknown_set(group: Group, liveness: Liveness) -> int | None:
    """Return the next master where the set is not known.

    It is the last master, which has all messages; else, once all brokers are here, the broker with
    the longest log among those in the set or without a reported role. The last master's epoch is
    the latest that any broker reported, even if that broker is silent or dead now: an older master
    must not overtake it.
    """
    reports = {
        one: liveness.newest_report(group, one)
        for one in group.replicas
        if liveness.has_recent_heartbeat(group, one)
    }
    able = {
        one: heard
        for one, heard in reports.items()
        if heard is not None
        and group.replicas[one].unfit != DAMAGED
        and liveness.reported_health(group, one) is not StoreHealth.FAILED
    }
    latest = _latest_reported_epoch(group, liveness)
    last = [o for o, heard in able.items() if (heard.epoch, heard.standing) == (latest, MASTER)]
    if last:
        return _best_candidate(group, last, liveness)
    if len(reports) < len(group.replicas) or None in reports.values():
        return None
    whole = [one for one, heard in able.items() if not _reports_outside(heard)]
    return _best_candidate(group, whole, liveness) if whole else None


def _latest_reported_epoch(group: Group, liveness: Liveness) -> int:
    """The latest epoch that any registered broker of the group reported, alive or dead;
    -1 without one."""
    heard = [liveness.newest_report(group, one) for one in group.replicas]
    epochs = [one.epoch for one in heard if one is not None]
    return max(
        [*epochs, *(liveness.last_epochs(group, one)[0] for one in group.replicas)], default=-1
    )


def _reports_outside(report: BrokerReport | None) -> bool:
    """Whether a broker reported that it was outside of the SyncStateSet."""
    return report is not None and report.standing == OUTSIDE


def choose_master(
    group: Group, liveness: Liveness, *, unclean: bool = False, wanted: int | None = None
) -> int | None:
    """Return the id of the broker that should be master now, maybe the present one; None: no
    broker can. `wanted` is an administrator's choice, returned if allowed; `unclean`: see
    `decide_election`.

    Only brokers with a fresh heartbeat qualify: if a replica is cut off together with its master,
    the master may count as dead some moments earlier, and that replica would be waited for in vain.
    """
    if wanted is not None:
        return wanted if _may_be_designated(group, wanted, liveness, unclean) else None
    if is_behind(group, liveness) or (group.had_master and not group.candidates):
        return _master_of_unknown_set(group, liveness)
    master = group.master_id if _has_whole_master(group, liveness) else None
    if master is not None and liveness.reported_health(group, master) is StoreHealth.FIT:
        return master
    fresh = [one for one in sorted(group.candidates) if liveness.has_recent_heartbeat(group, one)]
    fit = [member for member in fresh if not group.is_unfit(member)]
    if master is not None and liveness.reported_health(group, master) is StoreHealth.SLOW:
        return _faster_member(group, fit, liveness) or master
    for able in (StoreHealth.FIT, StoreHealth.SLOW, StoreHealth.STOPPING, StoreHealth.FULL):
        if master is not None and liveness.reported_health(group, master) is able:
            return master
        able_ones = [one for one in fit if liveness.reported_health(group, one) is able]
        if able_ones:
            return _best_candidate(group, able_ones, liveness)
    reports = [liveness.newest_report(group, one) for one in fresh]
    all_reported = len(fresh) == len(group.candidates) and None not in reports
    whole = [one for one in fresh if group.replicas[one].unfit != DAMAGED]
    if whole and all(map(group.is_unfit, group.candidates)) and all_reported:
        # No broker surely has all acknowledged messages; a replica that is away could have more,
        # and so could a broker whose store is about to be opened again.
        return (
            None
            if _with_failed_store(group, whole, liveness)
            else _best_candidate(group, whole, liveness)
        )
    if unclean:
        everybody = [
            one for one in sorted(group.replicas) if liveness.has_recent_heartbeat(group, one)
        ]
        able_ones = [
            one for one in everybody if one not in _with_failed_store(group, everybody, liveness)
        ]
        return _best_candidate(group, able_ones, liveness) if able_ones else None
    return None


def _faster_member(group: Group, fit: list[int], liveness: Liveness) -> int | None:
    """Return the member that replaces a serving master with a slow disk; None if the master stays.

    A member must have reported a fast disk. An unknown disk may be as slow: in a group on the same
    disk array the role of master would move from broker to broker.
    """
    able = [
        o
        for o in fit
        if liveness.reported_health(group, o) is StoreHealth.FIT and liveness.reports_fast(group, o)
    ]
    return _best_candidate(group, able, liveness) if able and liveness.is_settled(group) else None


def _has_whole_master(group: Group, liveness: Liveness) -> bool:
    """Whether there is a master that lives, and has all acknowledged messages."""
    master = group.master_id
    return (
        master is not None and not group.is_unfit(master) and liveness.may_be_alive(group, master)
    )


def _with_failed_store(group: Group, brokers: list[int], liveness: Liveness) -> list[int]:
    """Return the ids in `brokers` whose reported store health is FAILED."""
    return [one for one in brokers if liveness.reported_health(group, one) is StoreHealth.FAILED]


def _may_be_designated(group: Group, wanted: int, liveness: Liveness, unclean: bool) -> bool:
    """Whether an administrator may choose this broker; any, if all members were removed."""
    allowed = (
        wanted in group.candidates or unclean or not group.members or is_behind(group, liveness)
    )
    present = liveness.is_active(group, wanted) or (
        wanted == group.master_id and liveness.may_be_alive(group, wanted)
    )
    return allowed and present and not _with_failed_store(group, [wanted], liveness)


def election_event(group: Group, winner: int, liveness: Liveness) -> ElectMaster:
    """Make the event by which the broker `winner` becomes master.

    If a broker of the group knows a later epoch, which the controllers lost, it would refuse a
    lower one: the new epoch is later than that. The winner may be dead by now, or lose its log
    before its term begins: then another broker with all messages must be found. A Java broker
    begins without a request, so after its election only the set counts.
    """
    report = liveness.newest_report(group, winner)
    knows_all = winner in group.candidates and not is_behind(group, liveness)
    may_do_without = knows_all and not group.is_unfit(winner)
    on_lease = may_do_without and report is not None and report.leased
    latest = _latest_reported_epoch(group, liveness)
    is_passed = group.master_epoch < latest <= group.master_epoch + EPOCH_JUMP_MAX
    return ElectMaster(group.broker_name, winner, latest + 1 if is_passed else 0, on_lease)


def decide_begin_term(tables: GroupTables, broker_name: str, master_epoch: int) -> Decision:
    """Decide to record that the master of that epoch has reported (BeginMasterTerm).

    Only members of the SyncStateSet are candidates afterwards. No event if another epoch is current
    or the term was recorded before.
    """
    group = tables.groups.get(broker_name)
    if group is None or group.master_epoch != master_epoch or not group.eligible:
        return Decision()
    return Decision(events=(BeginMasterTerm(broker_name, master_epoch),))


def decide_without_request(
    tables: GroupTables, broker_name: str, liveness: Liveness, *, unclean: bool = False
) -> Decision | None:
    """Return the leader's decision on a group without a request; None if nothing can be done.

    It is due when a broker died or came back or became unfit, and from time to time.
    """
    group = tables.groups.get(broker_name)
    if group is None or not group.had_master or is_unsure(group, liveness):
        return None
    if is_behind(group, liveness) and choose_master(group, liveness) is None:
        return None  # no data is given up: wait for brokers with a later epoch
    if (
        _has_whole_master(group, liveness)
        and not is_behind(group, liveness)
        and choose_master(group, liveness) == group.master_id
    ):
        unfit = group.unfit_members
        if not unfit:
            return None
        return Decision(events=(AlterSyncStateSet(broker_name, group.members - unfit),))
    decision = decide_election(
        tables, headers.ElectMasterRequest(broker_name), liveness, unclean=unclean
    )
    if decision.code is ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE and _awaits_candidate(
        group, liveness
    ):
        return None
    return decision if decision.events else None


def _awaits_candidate(group: Group, liveness: Liveness) -> bool:
    """Whether a candidate without a fresh heartbeat may still be alive, and is waited for."""
    return any(
        liveness.may_be_alive(group, member) and not liveness.has_recent_heartbeat(group, member)
        for member in group.candidates
    )


def _no_candidate(group: Group, asked: int) -> Decision:
    """Refuse an election, because no broker can be master.

    The loss of the master is recorded once; RocketMQ raises the epoch again with every attempt.
    """
    if asked != NO_REQUESTER:
        remark = "Failed to elect a new master: no broker that may be master is alive"
        return Decision(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark, headers.ElectMasterResponse()
        )
    given_up = (ElectMaster(group.broker_name, None),) if group.master_id is not None else ()
    return Decision(
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        "The master is dead, or cannot lead, and no broker that may be master is alive",
        headers.ElectMasterResponse(),
        events=given_up,
    )


def _best_candidate(group: Group, candidates: list[int], liveness: Liveness) -> int:
    """The candidate with the latest epoch, then the longest log, then the highest priority, then
    the lowest id."""

    def rank(broker_id: int) -> tuple[int, int, int, int]:
        newest = liveness.newest_report(group, broker_id)
        return (*(newest.election_rank if newest is not None else (1, 1, PRIORITY_LAST)), broker_id)

    return min(candidates, key=rank)


def _master_of(group: Group) -> headers.ElectMasterResponse:
    """The answer's header with the group's master, its address and both epochs."""
    return headers.ElectMasterResponse(
        group.master_id, group.master_address, group.master_epoch, group.set_epoch
    )


def _unregistered_refusal(broker_name: str, broker_id: int | None = None) -> Decision:
    return Decision(
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        unregistered_remark(broker_name, broker_id),
        headers.ElectMasterResponse(),
    )


def unregistered_remark(broker_name: str, broker_id: int | None = None) -> str:
    """Return the remark for a broker that the controller does not know."""
    if broker_id is None:
        return f"Broker-set: {broker_name} hasn't been registered in controller"
    return f"BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}"


def _java_text(broker_id: int | None) -> str:
    """A broker id as Java prints it: "null" for None."""
    return "null" if broker_id is None else str(broker_id)

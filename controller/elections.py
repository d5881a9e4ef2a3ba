"""Who is master and who is in sync: what the leader decides, and what it refuses.

Owns the rules of alterSyncStateSet and electMaster (RocketMQ: ReplicasInfoManager,
DefaultElectPolicy), and what a leader does about a group unasked. It must never change a table: a
decision is an answer and the events that make it true once they are committed. Called by core.py,
one decision at a time, each after the events of the one before are applied.

Only a member of the SyncStateSet becomes master: every one of them has all that was acknowledged.
A new master is the only member (RocketMQ), and may be dead already. So until its reign begins, and
anything can be acknowledged in it, those that could have been elected in its place still may be.
Beyond RocketMQ, too, a member that is unfit (see events.MarkUnfit) is passed over:

    a master that became unfit                 is replaced at once
    another member, while the master lives     is taken out of the set; the master adds it again
                                               once it caught up, and that makes it fit
    all members are unfit                      the one with the longest log, once all of them live;
                                               one whose log is damaged never, it takes no writes

A broker also says with each heartbeat whether its store takes messages (`Fitness`): that holds
while it says so, and is in no log.

    a master that takes none                   is replaced at once by one that does
    a master that is about to stop             likewise, while it still serves; it stays where there
                                               is no other
    a master whose disk is slow for senders    is replaced by a member that reports a fast disk,
                                               not before the reign is SETTLED_MS old; else it stays
    a member whose disk is slow                is elected only if no fit member is there
    none does, and the disks are full          the master stays, or one that has all is made it
    none does, and a master's store failed     it cannot lead: the group has no master until
                                               one can; one that was elected declines this way

Controllers may know less than their brokers: they were restored from an older copy, or ordered to
forget brokers that live. Brokers say of which epoch their logs are, and what they were in it.

    a log is of a later epoch than the group   no known member of the set may have it all: the
                                               master of that epoch is the next one, else the one
                                               with most, once all are here; in an epoch behind it
    all members are forgotten                  likewise
    a group that is forgotten, and is here     the longest log of those that are here, but of none
    again                                      that was outside of the set, nor before one that runs
                                               and knows more is registered again
    a broker was not heard since this          waited for in the first part of a lead: it may be the
    controller started                         one that knows of a later epoch

An administrator who names a member gets it, fit or not, unless its store failed. An epoch is raised
when there is a new master or the old one is given up, and never for an outage that goes on.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turbopump.controller.events import AlterSyncStateSet, BeginReign, ElectMaster, Event
from turbopump.controller.liveness import OUTSIDE, PRIORITY_LAST, REIGNS, Epochs, Heard
from turbopump.controller.state import DAMAGED, Group, GroupTables
from turbopump.engine.types import Fitness
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.controller import ElectMasterBody, MemberGroup, SyncStateSet
from turbopump.net.wire.headers import controller as headers

EPOCH_JUMP_MAX: Final = 1_000_000
"""How far a broker's own epoch may take the group's along: a made-up one must not use them up."""
NOBODY: Final = -1
"""The broker id of an election that the controller itself wants."""


class Liveness(Protocol):
    """What is known of brokers at the time of a decision; see liveness.py for the kinds."""

    def heard(self, group: Group, broker_id: int) -> bool: ...
    def fresh(self, group: Group, broker_id: int) -> bool: ...
    def alive(self, group: Group, broker_id: int) -> bool: ...
    def newest(self, group: Group, broker_id: int) -> Heard | None: ...
    def last_epochs(self, group: Group, broker_id: int) -> Epochs: ...
    def may_tell(self, group: Group, broker_id: int) -> bool: ...
    def strangers(self, group: Group) -> list[Heard]: ...
    def is_young(self) -> bool: ...
    def is_marked(self, group: Group, broker_id: int, life: int | None) -> bool: ...
    def fitness(self, group: Group, broker_id: int) -> Fitness: ...
    def reports_fast(self, group: Group, broker_id: int) -> bool: ...
    def is_settled(self, group: Group) -> bool: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and what has to be committed before it is given."""

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    header: Any = None
    body: bytes = b""
    events: tuple[Event, ...] = field(default=())


def alter(
    tables: GroupTables,
    header: headers.AlterSyncStateSetRequest,
    wanted: SyncStateSet,
    live: Liveness,
) -> Decision:
    """1001: the master's SyncStateSet. The checks and their order are RocketMQ's."""
    group = tables.groups.get(header.broker_name)
    if group is None:
        return _not_altered(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"Broker-set: {header.broker_name} hasn't been registered in controller",
        )
    refusal = _alter_refusal(group, header, wanted, live)
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
    live: Liveness,
) -> Decision | None:
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    rejecting = "Rejecting alter syncStateSet request because"
    if wanted.members == group.members and not header.fence:
        return _not_altered(
            failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update it"
        )
    if group.master_id is None or group.master_id != header.master_broker_id:
        return _not_altered(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{rejecting} the current leader is:{{{_shown(group.master_id)}}}, "
            f"not {{{header.master_broker_id}}}",
        )
    if group.master_epoch != header.master_epoch:
        return _not_altered(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{rejecting} the current master epoch is:{{{group.master_epoch}}}, "
            f"not {{{header.master_epoch}}}",
        )
    if group.set_epoch != wanted.set_epoch or group.unfit_members:
        # With an unfit member the set is about to be another one, and the master's view is older.
        return _not_altered(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{rejecting} the current syncStateSet epoch is:{{{group.set_epoch}}}, "
            f"not {{{wanted.set_epoch}}}",
        )
    for member in sorted(wanted.members):
        if member not in group.replicas:
            return _not_altered(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{rejecting} the replicas {{{member}}} don't exist",
            )
        if not live.heard(group, member):
            return _not_altered(
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"{rejecting} the replicas {{{member}}} don't alive",
            )
    if group.master_id not in wanted.members:
        return _not_altered(failed, f"{rejecting} the newSyncStateSet don't contains origin leader")
    return None


def _not_altered(code: ResponseCode, remark: str) -> Decision:
    return Decision(code, remark, headers.AlterSyncStateSetResponse())


def elect(
    tables: GroupTables,
    header: headers.ElectMasterRequest,
    live: Liveness,
    *,
    unclean: bool = False,
) -> Decision:
    """1002, asked by a broker, by an administrator, or by the controller itself (without an id).

    With `unclean` (enableElectUncleanMaster) a replica outside of the SyncStateSet may become
    master where no member can: messages that were acknowledged may be lost then.
    """
    group = tables.groups.get(header.broker_name)
    asked = header.broker_id
    if group is None or (header.cluster_name and header.cluster_name != group.cluster_name):
        return _need_register(header.broker_name)
    if asked != NOBODY and asked not in group.replicas and header.designate_elect:
        return _nobody(group, asked)  # an administrator's slip is no broker that has to enrol
    if asked != NOBODY and asked not in group.replicas:
        return _need_register(header.broker_name, asked)
    if not group.reigned and asked != NOBODY and not header.designate_elect:
        winner: int | None = _first(group, asked, live)
    else:
        wanted = asked if header.designate_elect and asked != NOBODY else None
        winner = choose(group, live, unclean=unclean, wanted=wanted)
        is_new = winner != group.master_id or is_behind(group, live)
        if wanted is None and is_new and is_unsure(group, live):
            return _nobody(group, asked)
    if winner is None:
        return _nobody(group, asked)
    if winner == group.master_id and not is_behind(group, live):
        return Decision(
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            f"The old master {group.master_address} has still alive, "
            "not need to elect a new broker",
            _as_elected(group),
            ElectMasterBody(group.members).encode(),
        )
    event = new_reign(group, winner, live)
    after = group.after(event)
    members = MemberGroup(after.cluster_name, after.broker_name, after.addresses)
    return Decision(
        header=_as_elected(after),
        body=ElectMasterBody(after.members, members).encode(),
        events=(event,),
    )


def _first(group: Group, asked: int, live: Liveness) -> int | None:
    """The first master: any that asks, as nothing was ever written. But where a group was forgotten
    and is here again it is the broker with the longest log, which the others would cut off, and
    none that was outside of the set: that one may lack what was acknowledged. Where all controllers
    forgot, those that know more may not have registered again yet."""
    fresh = [one for one in group.replicas if live.fresh(group, one)]
    failed = _failed(group, fresh, live)
    newest = {one: live.newest(group, one) for one in fresh if one not in failed}
    logs = [one for one, told in newest.items() if told is not None and told.max_offset > 0]
    if not logs and live.may_tell(group, asked):
        return None
    may_lead = [one for one in {asked, *logs} if not _is_outside(newest.get(one))]
    winner = (_best(group, may_lead, live) if may_lead else None) if logs else asked
    told = None if winner is None else newest.get(winner)
    if told is not None and told.epoch > 0 and live.is_young():
        return None
    knows = (-1, False) if told is None else told.knows
    return None if any(one.knows > knows for one in live.strangers(group)) else winner


def is_behind(group: Group, live: Liveness) -> bool:
    """Whether a broker's log is of a later epoch than this group had, or it knows a later set of
    this one: the controllers forgot something. What a broker reported counts when it is dead, too.
    (A Java broker's word is not taken for that, nor a made-up epoch.)"""
    for broker_id in group.replicas:
        epoch, set_epoch = live.last_epochs(group, broker_id)
        ahead = (
            set_epoch - group.set_epoch
            if epoch == group.master_epoch
            else (epoch - group.master_epoch)
        )
        if 0 < ahead <= EPOCH_JUMP_MAX:
            return True
    return False


def is_unsure(group: Group, live: Liveness, but: int = NOBODY) -> bool:
    """Whether a broker, other than `but`, may be about to tell of a later epoch than this group
    had: this controller leads since a moment ago, and did not hear from it since it started."""
    return any(live.may_tell(group, one) for one in group.replicas if one != but)


def may_lack(group: Group, live: Liveness) -> bool:
    """Whether these controllers forgot something of the group, or may have."""
    return is_behind(group, live) or is_unsure(group, live)


def _forgotten(group: Group, live: Liveness) -> int | None:
    """The broker to be master where the set is not known: the last one that reigned, as it has all;
    else the one with most of those that were in its set, or do not say, once all are here.

    The last one is of the latest epoch that any broker reported, also one that is silent now, or
    dead: an older master must not overtake it.
    """
    told = {one: live.newest(group, one) for one in group.replicas if live.fresh(group, one)}
    able = {
        one: heard
        for one, heard in told.items()
        if heard is not None
        and group.replicas[one].unfit != DAMAGED
        and live.fitness(group, one) is not Fitness.FAILED
    }
    latest = _latest_epoch(group, live)
    last = [o for o, heard in able.items() if (heard.epoch, heard.standing) == (latest, REIGNS)]
    if last:
        return _best(group, last, live)
    if len(told) < len(group.replicas) or None in told.values():
        return None
    whole = [one for one, heard in able.items() if not _is_outside(heard)]
    return _best(group, whole, live) if whole else None


def _latest_epoch(group: Group, live: Liveness) -> int:
    heard = [live.newest(group, one) for one in group.replicas]
    told = [one.epoch for one in heard if one is not None]
    return max([*told, *(live.last_epochs(group, one)[0] for one in group.replicas)], default=-1)


def _is_outside(told: Heard | None) -> bool:
    return told is not None and told.standing == OUTSIDE


def choose(
    group: Group, live: Liveness, *, unclean: bool = False, wanted: int | None = None
) -> int | None:
    """Who is to be master now; None if none can be. `wanted`: the administrator's choice.

    Only brokers that were heard just now: where a replica is cut off together with its master, the
    master may count as dead some moments earlier, and that replica would be waited for in vain.
    """
    if wanted is not None:
        return wanted if _may_be_designated(group, wanted, live, unclean) else None
    if is_behind(group, live) or (group.reigned and not group.candidates):
        return _forgotten(group, live)
    master = group.master_id if _is_there(group, live) else None
    if master is not None and live.fitness(group, master) is Fitness.FIT:
        return master
    fresh = [one for one in sorted(group.candidates) if live.fresh(group, one)]
    fit = [member for member in fresh if not group.is_unfit(member)]
    if master is not None and live.fitness(group, master) is Fitness.SLOW:
        return _faster(group, fit, live) or master
    for able in (Fitness.FIT, Fitness.SLOW, Fitness.STOPPING, Fitness.FULL):
        if master is not None and live.fitness(group, master) is able:
            return master
        able_ones = [one for one in fit if live.fitness(group, one) is able]
        if able_ones:
            return _best(group, able_ones, live)
    told = [live.newest(group, one) for one in fresh]
    all_told = len(fresh) == len(group.candidates) and None not in told
    whole = [one for one in fresh if group.replicas[one].unfit != DAMAGED]
    if whole and all(map(group.is_unfit, group.candidates)) and all_told:
        # None has all that was acknowledged for sure; a replica that is away could have more,
        # and so could one whose store is about to be opened again.
        return None if _failed(group, whole, live) else _best(group, whole, live)
    if unclean:
        everybody = [one for one in sorted(group.replicas) if live.fresh(group, one)]
        able_ones = [one for one in everybody if one not in _failed(group, everybody, live)]
        return _best(group, able_ones, live) if able_ones else None
    return None


def _faster(group: Group, fit: list[int], live: Liveness) -> int | None:
    """The member to lead in place of a slow master that serves; None if the master stays.

    A member must have reported a fast disk. An unknown disk may be as slow: in a group on one disk
    array the lead would move from broker to broker."""
    able = [o for o in fit if live.fitness(group, o) is Fitness.FIT and live.reports_fast(group, o)]
    return _best(group, able, live) if able and live.is_settled(group) else None


def _is_there(group: Group, live: Liveness) -> bool:
    """Whether there is a master that lives, and has all that was acknowledged."""
    master = group.master_id
    return master is not None and not group.is_unfit(master) and live.alive(group, master)


def _failed(group: Group, brokers: list[int], live: Liveness) -> list[int]:
    """Those whose store cannot be led."""
    return [one for one in brokers if live.fitness(group, one) is Fitness.FAILED]


def _may_be_designated(group: Group, wanted: int, live: Liveness, unclean: bool) -> bool:
    """The members all forgotten, an administrator's word is the only one there is."""
    allowed = wanted in group.candidates or unclean or not group.members or is_behind(group, live)
    present = live.heard(group, wanted) or (wanted == group.master_id and live.alive(group, wanted))
    return allowed and present and not _failed(group, [wanted], live)


def new_reign(group: Group, winner: int, live: Liveness) -> ElectMaster:
    """The event that makes `winner` master. A broker of the group that knows a later epoch, of a
    life of the controllers that they have forgotten, would refuse a lower one: theirs is passed.

    It may be dead by now, or lose what it had before it begins: then another one that has all must
    be found. A Java broker begins without asking, so behind it only the set counts.
    """
    told = live.newest(group, winner)
    knows_all = winner in group.candidates and not is_behind(group, live)
    may_do_without = knows_all and not group.is_unfit(winner)
    on_lease = may_do_without and told is not None and told.leased
    latest = _latest_epoch(group, live)
    is_passed = group.master_epoch < latest <= group.master_epoch + EPOCH_JUMP_MAX
    return ElectMaster(group.broker_name, winner, latest + 1 if is_passed else 0, on_lease)


def begin(tables: GroupTables, broker_name: str, master_epoch: int) -> Decision:
    """The master of that epoch is there: from its first lease on the set alone counts."""
    group = tables.groups.get(broker_name)
    if group is None or group.master_epoch != master_epoch or not group.eligible:
        return Decision()
    return Decision(events=(BeginReign(broker_name, master_epoch),))


def look_after(
    tables: GroupTables, broker_name: str, live: Liveness, *, unclean: bool = False
) -> Decision | None:
    """What a leader does about a group unasked; None if nothing is to be done, or nothing can be.

    Called when a broker died or came back, became unfit, and from time to time.
    """
    group = tables.groups.get(broker_name)
    if group is None or not group.reigned or is_unsure(group, live):
        return None
    if is_behind(group, live) and choose(group, live) is None:
        return None  # no past is given up: a broker that knows more is waited for
    if (
        _is_there(group, live)
        and not is_behind(group, live)
        and choose(group, live) == group.master_id
    ):
        unfit = group.unfit_members
        if not unfit:
            return None
        return Decision(events=(AlterSyncStateSet(broker_name, group.members - unfit),))
    decision = elect(tables, headers.ElectMasterRequest(broker_name), live, unclean=unclean)
    if decision.code is ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE and _may_come(group, live):
        return None
    return decision if decision.events else None


def _may_come(group: Group, live: Liveness) -> bool:
    """Whether a member that was not heard of late may still be alive: none is given up before."""
    return any(
        live.alive(group, member) and not live.fresh(group, member) for member in group.candidates
    )


def _nobody(group: Group, asked: int) -> Decision:
    """No broker can be master. That the old one is none any more is said once: RocketMQ raises the
    epoch again with every try."""
    if asked != NOBODY:
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


def _best(group: Group, candidates: list[int], live: Liveness) -> int:
    def rank(broker_id: int) -> tuple[int, int, int, int]:
        newest = live.newest(group, broker_id)
        return (*(newest.rank if newest is not None else (1, 1, PRIORITY_LAST)), broker_id)

    return min(candidates, key=rank)


def _as_elected(group: Group) -> headers.ElectMasterResponse:
    return headers.ElectMasterResponse(
        group.master_id, group.master_address, group.master_epoch, group.set_epoch
    )


def _need_register(broker_name: str, broker_id: int | None = None) -> Decision:
    return Decision(
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        unregistered(broker_name, broker_id),
        headers.ElectMasterResponse(),
    )


def unregistered(broker_name: str, broker_id: int | None = None) -> str:
    """The remark for a broker that the controller does not know."""
    if broker_id is None:
        return f"Broker-set: {broker_name} hasn't been registered in controller"
    return f"BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}"


def _shown(broker_id: int | None) -> str:
    return "null" if broker_id is None else str(broker_id)

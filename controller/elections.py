"""Who is master and who is in sync: what the leader decides, and what it refuses.

Owns the rules of alterSyncStateSet and electMaster (RocketMQ: ReplicasInfoManager,
DefaultElectPolicy), and what a leader does about a group unasked. It must never change a table: a
decision is an answer and the events that make it true once they are committed. Called by core.py,
one decision at a time, each after the events of the one before are applied.

Only a member of the SyncStateSet becomes master: every one of them has all that was acknowledged.
A new master is the only member (RocketMQ), and may be dead already. So until its reign begins, and
anything can be acknowledged in it, those who could have been elected in its place still may be.
Beyond RocketMQ, too, a member that is unfit (see events.MarkUnfit) is passed over:

    a master that became unfit                 is replaced at once
    another member, while the master lives     is taken out of the set; the master adds it again
                                               once it caught up, and that makes it fit
    all members are unfit                      the one with the longest log, once all of them live;
                                               one whose log is damaged never, it takes no writes

An administrator who names a member gets it, fit or not. An epoch is raised when there is a new
master or the old one is given up, and never for an outage that goes on.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turbopump.controller.events import AlterSyncStateSet, BeginReign, ElectMaster, Event
from turbopump.controller.liveness import PRIORITY_LAST, Heard
from turbopump.controller.state import DAMAGED, Group, GroupTables
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
    """1002, asked by a broker, by an administrator, or by the controller itself (id NOBODY).

    With `unclean` (enableElectUncleanMaster) a replica outside of the SyncStateSet may become
    master where no member can: messages that were acknowledged may be lost then.
    """
    group = tables.groups.get(header.broker_name)
    asked = header.broker_id
    if group is None or (header.cluster_name and header.cluster_name != group.cluster_name):
        return _need_register(header.broker_name)
    if asked != NOBODY and asked not in group.replicas:
        return _need_register(header.broker_name, asked)
    if not group.reigned and asked != NOBODY:
        winner: int | None = _first(group, asked, live)
    else:
        wanted = asked if header.designate_elect and asked != NOBODY else None
        winner = choose(group, live, unclean=unclean, wanted=wanted)
    if winner is None:
        return _nobody(group, asked)
    if winner == group.master_id:
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


def _first(group: Group, asked: int, live: Liveness) -> int:
    """The first master: whoever asks, as nothing was ever written. But where a group was forgotten
    and is here again it is the broker with the longest log, which the others would cut off."""
    newest = {one: live.newest(group, one) for one in group.replicas if live.fresh(group, one)}
    logs = [one for one, told in newest.items() if told is not None and told.max_offset > 0]
    return _best(group, [asked, *logs], live) if logs else asked


def choose(
    group: Group, live: Liveness, *, unclean: bool = False, wanted: int | None = None
) -> int | None:
    """Who is to be master now; None if nobody can be. `wanted`: the administrator's choice.

    Only who was heard just now: where a replica is cut off together with its master, the master may
    count as dead some moments earlier, and that replica would be waited for in vain.
    """
    if wanted is not None:
        return wanted if _may_be_designated(group, wanted, live, unclean) else None
    master = group.master_id
    if master is not None and not group.is_unfit(master) and live.alive(group, master):
        return master
    fresh = [one for one in sorted(group.candidates) if live.fresh(group, one)]
    fit = [member for member in fresh if not group.is_unfit(member)]
    if fit:
        return _best(group, fit, live)
    told = [live.newest(group, one) for one in fresh]
    all_told = len(fresh) == len(group.candidates) and None not in told
    whole = [one for one in fresh if group.replicas[one].unfit != DAMAGED]
    if whole and all(map(group.is_unfit, group.candidates)) and all_told:
        # Nobody has all that was acknowledged for sure; who was not here yet could have had more.
        return _best(group, whole, live)
    if unclean:
        everybody = [one for one in sorted(group.replicas) if live.fresh(group, one)]
        return _best(group, everybody, live) if everybody else None
    return None


def _may_be_designated(group: Group, wanted: int, live: Liveness, unclean: bool) -> bool:
    """The members all forgotten, an administrator's word is the only one there is."""
    allowed = wanted in group.candidates or unclean or not group.members
    present = live.heard(group, wanted) or (wanted == group.master_id and live.alive(group, wanted))
    return allowed and present


def new_reign(group: Group, winner: int, live: Liveness) -> ElectMaster:
    """The event that makes `winner` master. A broker of the group that knows a later epoch, of a
    life of the controllers that they have forgotten, would refuse a lower one: theirs is passed.

    It may be dead by now, or lose what it had before it begins: then another one that has all must
    be found. A Java broker begins without asking, so behind it only the set counts.
    """
    told = live.newest(group, winner)
    may_do_without = winner in group.candidates and not group.is_unfit(winner)
    on_lease = may_do_without and told is not None and told.leased
    heard = [live.newest(group, broker_id) for broker_id in group.replicas]
    latest = max((one.epoch for one in heard if one is not None), default=-1)
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
    if group is None or not group.reigned:
        return None
    master = group.master_id
    if master is not None and not group.is_unfit(master) and live.alive(group, master):
        unfit = group.unfit_members
        if not unfit:
            return None
        return Decision(events=(AlterSyncStateSet(broker_name, group.members - unfit),))
    decision = elect(tables, headers.ElectMasterRequest(broker_name), live, unclean=unclean)
    if decision.code is ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE and _may_come(group, live):
        return None
    return decision if decision.events else None


def _may_come(group: Group, live: Liveness) -> bool:
    """Whether a member that was not heard of late may still be alive: nobody is given up before."""
    return any(
        live.alive(group, member) and not live.fresh(group, member) for member in group.candidates
    )


def _nobody(group: Group, asked: int) -> Decision:
    """Nobody can be master. That the old one is none any more is said once: RocketMQ raises the
    epoch again with every try."""
    if asked != NOBODY:
        remark = "Failed to elect a new master: no broker that may be master is alive"
        return Decision(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark, headers.ElectMasterResponse()
        )
    given_up = (ElectMaster(group.broker_name, None),) if group.master_id is not None else ()
    return Decision(
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        "The master is dead and no broker that may be master is alive",
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

"""Bugs of groups with controllers, to be planted one at a time: the suite must find each.

Bugs of replication and of the quorum alone are in ha/planted.py and raft/planted.py; some are
played here again, where real controllers elect.
"""

from collections.abc import Callable
from typing import Any

from tests.sim.group import test_hand_over as hand_over
from tests.sim.group import test_lost_state as lost_state
from tests.sim.group import test_stories as stories
from tests.sim.ha.planted import (
    acknowledged_before_durable,
    epoch_without_writes_refused,
    missing_member_does_not_count,
    proposed_set_ignored,
    released_when_demoted,
)
from tests.sim.planting import Patch, Plant
from tests.sim.raft.planted import entries_are_not_synced, votes_are_not_kept
from turbopump.broker.ha.control.heartbeats import ControllerHeartbeats
from turbopump.broker.ha.control.identity import IdentityFiles
from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.traffic.role import Role
from turbopump.controller import core, elections, registration, state
from turbopump.controller.driver import Driver
from turbopump.controller.events import ApplyBrokerId
from turbopump.controller.raft.follower import MemberState
from turbopump.controller.raft.storage import SLOT_SIZE, RaftStorage
from turbopump.controller.requests import ControllerRequests
from turbopump.controller.state import Group, GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.flush import DiskLane
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.namesrv.routes import RouteTable
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest


def elects_anybody(patch: Patch) -> None:
    """K6: any living broker may be elected, in the set or not."""

    def choose(group: Group, live: Any, *, unclean: bool = False, wanted: Any = None) -> Any:
        master = group.master_id
        if master is not None and live.may_be_alive(group, master):
            return master
        heard = [one for one in sorted(group.replicas) if live.is_active(group, one)]
        return heard[0] if heard else None

    patch.setattr(elections, "choose_master", choose)


def unclean_restarts_do_not_matter(patch: Patch) -> None:
    """KIP-966: a broker that restarts without bytes it had acknowledged stays a candidate."""
    patch.setattr(registration, "_unfit_events", lambda *args: [])


def ids_are_given_twice(patch: Patch) -> None:
    """K4: any broker gets the id it asks for."""

    def apply_id(tables: GroupTables, header: headers.ApplyBrokerIdRequest) -> elections.Decision:
        cluster, name = header.cluster_name, header.broker_name
        code, broker_id = header.register_check_code, header.applied_broker_id
        reply = headers.ApplyBrokerIdResponse(cluster, name)
        event = ApplyBrokerId(cluster, name, code.partition(";")[0], code, broker_id)
        return elections.Decision(header=reply, events=(event,))

    patch.setattr(core.registration, "apply_id", apply_id)


def ids_are_kept_in_memory(patch: Patch) -> None:
    """R30, R31: a broker gets a new id at each start."""
    patch.setattr(IdentityFiles, "save", lambda self, broker_id: None)
    patch.setattr(IdentityFiles, "save_applied", lambda self, applied: None)


def registers_before_its_role_is_known(patch: Patch) -> None:
    """R29, R32: a broker registers at the name server with id 0 before it has a role."""
    patch.setattr(
        Role, "is_known", property(lambda self: True, lambda self, known: None), raising=False
    )


def last_registration_wins(patch: Patch) -> None:
    """R28: the name server believes the last that came."""
    patch.setattr(RouteTable, "_has_newer_holder", lambda self, broker, now_ms: False)


def no_lease(patch: Patch) -> None:
    """R27: a master without contact to a controller goes on."""
    patch.setattr(ControllerHeartbeats, "has_lease", property(lambda self: True))


def leases_of_before_count(patch: Patch) -> None:
    """A new master acknowledges before the controllers know that its term begins."""
    patch.setattr(ControllerHeartbeats, "begin_term", ControllerHeartbeats.send_soon)
    patch.setattr(
        Group, "is_current_master", lambda self, broker_id, epoch: broker_id in self.replicas
    )
    patch.setattr(ControllerRequests, "_handle_heartbeat", _granted)


def _granted(self: ControllerRequests, connection: int, request: Command) -> Deferred[Command]:
    """904, whichever broker may be elected."""
    header = read_header(BrokerHeartbeatRequest, request.fields)
    self._core.heartbeats.on_heartbeat(header, connection, self._core.now_ms)
    group = self._core.tables.groups.get(header.broker_name)
    result: Deferred[Command] = Deferred()
    if group is None:
        result.resolve(self._heartbeat_answer(request, header))
        return result
    eligible, group.eligible = group.eligible, frozenset()
    result.resolve(self._heartbeat_answer(request, header))
    group.eligible = eligible
    return result


def nobody_looks_for_dead_masters(patch: Patch) -> None:
    """R33: no master is elected when the present one is dead."""
    patch.setattr(elections, "decide_without_request", lambda *args, **options: None)


def any_set_is_agreed_to(patch: Patch) -> None:
    """K5: any broker, of whatever epoch, gets its set."""
    patch.setattr(elections, "_alter_refusal", lambda *args: None)


def snapshots_without_sets(patch: Patch) -> None:
    """Raft-7: a controller that starts from a snapshot has no sets."""
    written = state._group_members
    patch.setattr(state, "_group_members", lambda group: {**written(group), "members": []})


def no_snapshots(patch: Patch) -> None:
    """R35: the log of the controllers is kept whole."""
    patch.setattr(MemberState, "ask_for_snapshot", lambda self: None)


def failed_syncs_of_a_log_count(patch: Patch) -> None:
    """F20: data whose sync failed counts as durable."""
    sync = DiskLane.sync

    def ignoring(self: DiskLane, ranges: Any, done: Callable[[OSError | None], None]) -> None:
        sync(self, ranges, lambda result: done(None))

    patch.setattr(DiskLane, "sync", ignoring)


def votes_cost_many_syncs(patch: Patch) -> None:
    """F22: where a sync takes its time, all campaign for ever."""
    save_term = RaftStorage.save_term

    def slowly(self: RaftStorage, term: int, vote: str | None) -> None:
        save_term(self, term, vote)
        for _ in range(60):
            self._votes.sync(0, SLOT_SIZE)

    patch.setattr(RaftStorage, "save_term", slowly)


def snapshots_of_the_leader_are_not_loaded(patch: Patch) -> None:
    """F25, F26: a controller that lost its disk ignores the leader's snapshot."""
    patch.setattr(Driver, "_load_snapshot", lambda self, action: None)


def copies_are_believed(patch: Patch) -> None:
    """F25: later epochs and sets that brokers report are ignored."""
    patch.setattr(elections, "is_behind", lambda group, live: False)


def the_first_to_come_is_master(patch: Patch) -> None:
    """F26: controllers that lost all take the first broker that asks."""
    patch.setattr(elections, "_first_master", lambda group, asked, live: asked)


def ids_are_taken_over(patch: Patch) -> None:
    """F26: an id belongs to any broker that sends heartbeats or registrations with it."""
    has = GroupTables.has_broker
    patch.setattr(
        GroupTables,
        "has_broker",
        lambda self, cluster, name, broker_id, address=None: has(self, cluster, name, broker_id),
    )
    patch.setattr(
        headers.RegisterBrokerToControllerRequest,
        "register_check_code",
        property(lambda self: None, lambda self, code: None),
        raising=False,
    )


def stops_with_its_lead(patch: Patch) -> None:
    """F15: senders miss a master for as long as a stop takes."""
    patch.setattr(Membership, "has_successor", False)


def slow_syncs_are_not_reported(patch: Patch) -> None:
    """F22: a master whose disk takes seconds for each sync keeps its lead."""
    patch.setattr(GroupCommit, "is_sync_slow", property(lambda self: None))


BUGS: dict[Plant, tuple[str, ...]] = {
    proposed_set_ignored: ("lost answers", "kill"),
    missing_member_does_not_count: ("partition", "kill"),
    epoch_without_writes_refused: ("elections", "pause"),
    released_when_demoted: ("old master and replica", "elections"),
    acknowledged_before_durable: ("power", "slow disk"),
    entries_are_not_synced: ("power", "slow disk"),
    votes_are_not_kept: ("power", "leader alone"),
    elects_anybody: ("kill", "stall"),
    ids_are_given_twice: ("repeats",),
    ids_are_kept_in_memory: ("storm",),
    registers_before_its_role_is_known: ("storm",),
    last_registration_wins: ("pause", "no controllers"),
    leases_of_before_count: ("kill", "partition"),
    nobody_looks_for_dead_masters: ("kill",),
    snapshots_without_sets: ("storm", "lost answers"),
    failed_syncs_of_a_log_count: ("failing syncs of a broker", "power"),
    votes_cost_many_syncs: ("controllers stay slow", "kill"),
    snapshots_of_the_leader_are_not_loaded: ("emptied controller",),
    copies_are_believed: ("all controllers restored",),
    the_first_to_come_is_master: ("all controllers emptied", "partition"),
    ids_are_taken_over: ("all controllers emptied",),
    slow_syncs_are_not_reported: ("a broker stays very slow",),
}
"""Planted bugs, each with the faults that show it, the first as the theme."""
OF_STORIES: dict[Plant, Callable[[], None]] = {
    no_lease: stories.test_r27_a_master_apart_from_all_stops_before_another_is_elected,
    any_set_is_agreed_to: stories.test_k5_sets_that_are_not_the_masters_next_one_are_refused,
    unclean_restarts_do_not_matter: (
        lambda: lost_state.test_f38_who_lost_its_page_cache_is_not_elected(0)
    ),
    stops_with_its_lead: hand_over.test_f15_a_master_that_is_stopped_hands_its_lead_over_first,
    no_snapshots: stories.test_r35_a_log_of_controllers_does_not_grow_for_ever,
}
"""Bugs that lose no message, but cost time or space: a scripted story finds them."""

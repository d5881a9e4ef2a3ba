"""Bugs of acting replicas, to be planted one at a time: the suite must find each."""

from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.ha.acting.acting_group import ActingGroup
from turbopump.broker.ha.acting.acting_state import ActingState
from turbopump.broker.ha.acting.group_members import GroupMembers
from turbopump.broker.ha.acting.lock_quorum import LockQuorum
from turbopump.broker.ha.acting.pre_online import PreOnline
from turbopump.broker.ha.metadata.former import FormerLives, FormerNames
from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.ha.service import HaService
from turbopump.broker.replication import LockRequest
from turbopump.broker.tables.offset_sync import OffsetSync
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.traffic.role import Role
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.queues import MessageQueue


def writes_by_an_acting_master(patch: Patch) -> None:
    """A replica that acts takes messages (R38)."""
    changed = ActingGroup._on_acting_changed

    def leads(self: ActingGroup) -> None:
        changed(self)
        service = self._service
        assert isinstance(service, HaService), "it is the real one"
        if self._broker.role.is_acting:
            service._lead_plainly()

    patch.setattr(ActingGroup, "_on_acting_changed", leads)


def offsets_taken_over_from_a_stale_master(patch: Patch) -> None:
    """Offsets of another broker are taken over even if they are older (as in RocketMQ)."""

    def take(self: OffsetSync, pair: Any, queue_id: int, at: int, before: int, number: int) -> None:
        self._tables.committed.set_entry(pair, queue_id, at)

    patch.setattr(OffsetSync, "_adopt_offset", take)


def every_broker_keeps_progress(patch: Patch) -> None:
    """Replicas take commits and give locks at any time (as in RocketMQ)."""
    patch.setattr(Role, "may_change_offsets", property(lambda self: self.is_known))


def a_master_serves_at_once(patch: Patch) -> None:
    """A master serves without a request to its replicas."""
    patch.setattr(ReplicationConfig, "waits_to_lead", property(lambda self: False))


def a_replica_acts_beside_its_master(patch: Patch) -> None:
    """A replica acts until the name servers know the master (as in RocketMQ)."""
    patch.setattr(ActingState, "on_master_returning", lambda self, number: None)
    init = ActingState.__init__

    def alone(self: ActingState, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self._has_master = lambda: False

    patch.setattr(ActingState, "__init__", alone)


def name_servers_are_believed_at_once(patch: Patch) -> None:
    """Name servers are trusted at once, including servers that have just started."""
    patch.setattr(GroupMembers, "is_stable", property(lambda self: True))


def old_name_servers_are_asked_as_new_ones(patch: Patch) -> None:
    """Old name servers get new requests, which they never answer, so that no broker knows the
    members of the group.
    """
    answered = GroupMembers._on_response

    def stays(self: GroupMembers, address: str, server: Any, response: Any) -> None:
        answered(self, address, server, response)
        server.asks_route = False

    patch.setattr(GroupMembers, "_on_response", stays)


def a_master_that_was_not_heard_asks_nothing(patch: Patch) -> None:
    """A master whose requests failed does not repeat them: offsets that a replica took
    stay there.
    """
    patch.setattr(ActingGroup, "_ask_all_again", lambda self, why: None)


def offsets_are_not_asked_for(patch: Patch) -> None:
    """A master notifies its replicas, but takes over no offsets."""

    def nothing(self: PreOnline, name: str, former: object) -> Any:
        yield from ()

    patch.setattr(PreOnline, "_take_over_offsets", nothing)


def another_replica_is_not_asked(patch: Patch) -> None:
    """Which acted before, and has newer offsets (as in RocketMQ)."""
    patch.setattr(ActingGroup, "_knows_others", lambda self: True)


def who_acts_lacks_topics(patch: Patch) -> None:
    """An acting replica lacks topics that its master created after the last copy."""
    patch.setattr(MetadataFollower, "create_from_store", lambda self, now_ms: None)


def who_comes_later_is_not_asked(patch: Patch) -> None:
    """A serving master does not query a replica that comes later with newer offsets."""
    patch.setattr(ActingGroup, "_ask_new_replicas", lambda self: None)


def a_replica_waits_for_a_master_that_was_there(patch: Patch) -> None:
    """A replica is not notified that its master serves, and does not act when the master dies soon
    after.
    """
    patch.setattr(ActingGroup, "master_serves", lambda self, number: None)


def a_lock_is_one_brokers_word(patch: Patch) -> None:
    """The others are not asked (as without lockInStrictMode)."""

    def at_once(self: LockQuorum, wish: LockRequest) -> Deferred[list[MessageQueue]]:
        later: Deferred[list[MessageQueue]] = Deferred()
        later.resolve(list(wish.queues))
        return later

    patch.setattr(LockQuorum, "request_votes", at_once)


def a_broker_forgets_locks_and_votes(patch: Patch) -> None:
    """A lock quorum counts a broker that has just started (as in RocketMQ)."""
    patch.setattr(LockQuorum, "is_young", property(lambda self: False))


def what_a_replica_did_in_a_former_life_counts(patch: Patch) -> None:
    """Offsets of a replica count that acted before it had copied the deletion of the topic or the
    group (as in RocketMQ).
    """
    nothing = FormerNames(frozenset(), frozenset())
    patch.setattr(FormerLives, "names_unknown_to_peer", lambda self: nothing)


def offsets_of_a_former_life_stay_at_replicas(patch: Patch) -> None:
    """Replicas keep offsets of a topic or group that was created again before they looked (as in
    RocketMQ).
    """
    remove_topic, remove_group = OffsetTable.remove_topic, OffsetTable.remove_group

    def of_topic(self: OffsetTable, topic: str, deleted_ms: int = 0) -> None:
        if not self.versions.following:
            remove_topic(self, topic, deleted_ms)

    def of_group(self: OffsetTable, group: str, deleted_ms: int = 0) -> None:
        if not self.versions.following:
            remove_group(self, group, deleted_ms)

    patch.setattr(OffsetTable, "remove_topic", of_topic)
    patch.setattr(OffsetTable, "remove_group", of_group)


REMADE_BUGS: list[Plant] = [
    what_a_replica_did_in_a_former_life_counts,
    offsets_of_a_former_life_stay_at_replicas,
]
"""Bugs that need seeds with an operator."""

BUGS: list[Plant] = [
    writes_by_an_acting_master, offsets_taken_over_from_a_stale_master,
    every_broker_keeps_progress, a_master_serves_at_once, a_replica_acts_beside_its_master,
    name_servers_are_believed_at_once, old_name_servers_are_asked_as_new_ones,
    a_master_that_was_not_heard_asks_nothing, offsets_are_not_asked_for,
    another_replica_is_not_asked, who_acts_lacks_topics, who_comes_later_is_not_asked,
    a_replica_waits_for_a_master_that_was_there, a_lock_is_one_brokers_word,
    a_broker_forgets_locks_and_votes,
]  # fmt: skip

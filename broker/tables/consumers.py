"""Members, subscriptions and message model of every consumer group that is online.

Owns the contents of consumers' heartbeats (RocketMQ: ConsumerManager, ConsumerGroupInfo). It must
never send, close or read a clock: it names the clients to notify and to close. `now_ms` is a time
of the monotonic clock.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.clients import NotifyConsumerIdsChangedRequest
from turbopump.net.wire.heartbeat import BROADCASTING, ConsumerData
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.subscription import SubscriptionData

MAX_GROUPS_OF_PEER: Final = 1_000
"""Maximum consumer groups per connection; `register` raises TooManyGroups beyond this and the next
bounds. A client has a handful; each new group creates a group and a topic on disk."""

MAX_SUBSCRIPTIONS: Final = 10_000
"""Maximum topics of a group in a heartbeat, else TooManyGroups: an answer to 203 stays below a few
megabytes."""

MAX_COMPENSATED: Final = 32 << 20
"""Maximum estimated bytes of all groups' subscriptions that are known from pulls only, some 30,000;
further subscriptions are not remembered."""

MAX_COMPENSATED_SIZE: Final = 1_024
"""Maximum characters of a compensated subscription's expression; a longer one is not remembered."""

MAX_MEMBERS: Final = 96 << 20
"""Maximum estimated bytes of the connections of all groups, else TooManyGroups: 16,000 connections
with a dozen groups each."""

MAX_SUBSCRIBED: Final = 96 << 20
"""Maximum estimated bytes of all groups' subscriptions, else TooManyGroups: a heartbeat of a
connection may bring megabytes."""

_MEMBER_SIZE: Final = 400
"""Bytes of a member besides its client id; a group takes twice that besides its name."""


_NO_VERSION: Final = (1 << 63) - 1
"""Own subVersion of a member that has not sent a subVersion yet: no version is higher."""


class TooManyGroups(Exception):
    """A heartbeat exceeds a limit of groups, members or subscriptions; the text names it."""


@dataclass(slots=True)
class ConsumerConnection:
    """A connection that consumes for a group (RocketMQ: ClientChannelInfo). `language` and
    `version` are the client's, as in its requests; `last_update_ms` is the time of its last
    heartbeat by the monotonic clock."""

    client_id: str
    language: str
    version: int
    last_update_ms: int
    sub_version: int = 0
    """Highest subVersion in the newest heartbeat that carried subscriptions."""
    top_version: int = 0
    """Highest subVersion in any heartbeat of this client over this connection."""

    @property
    def size(self) -> int:
        """Estimated bytes of this member in the table."""
        return _MEMBER_SIZE + kept_size(self.client_id)


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one connection.

    `consume_type`, `message_model` and `consume_from_where` are texts of the newest heartbeat.
    `notifies`: members get NOTIFY_CONSUMER_IDS_CHANGED. `fingerprint`: from the newest heartbeat of
    the second version, None before the first heartbeat with subscriptions. `generation`: a new,
    never reused number after each join, leave or change of client id. `subscriptions` are by topic,
    `members` by connection, the newest heartbeat last. `size`: estimated bytes of the
    subscriptions.
    """

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    notifies: bool = True
    fingerprint: int | None = None
    generation: int = 0
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Peer, ConsumerConnection] = field(default_factory=dict)
    size: int = 0

    def client_ids(self) -> set[str]:
        """Return the members' client ids, a new set; a client with two connections counts once."""
        return {member.client_id for member in self.members.values()}

    def find(self, client_id: str) -> Peer | None:
        """Return the connection with this client id, or None; if there are several, the connection
        with the newest heartbeat."""
        found = [peer for peer, member in self.members.items() if member.client_id == client_id]
        return found[-1] if found else None


@dataclass(slots=True)
class _PulledSubscription:
    """A subscription that a pull carried, and the time of that pull."""

    subscription: SubscriptionData
    updated_ms: int


class ConsumerTable:
    """The online consumer groups by name, with their members and subscriptions, and the
    subscriptions that pulls carried. A group stays while it has a connection."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        self._compensated: dict[tuple[str, str], _PulledSubscription] = {}
        self._changed: dict[str, None] = {}
        self.on_change: Callable[[str], None] = lambda group: None
        """Called after each change or heartbeat with the group's name: its members or subscriptions
        may have changed, or it was removed."""
        self.members_size = 0
        """Estimated bytes of groups and their members."""
        self.compensated_size = 0
        """Estimated bytes of the subscriptions that are known from pulls only."""
        self._size = 0
        self._generations = 0

    def register(
        self,
        peer: Peer,
        client_id: str,
        data: ConsumerData,
        now_ms: int,
        *,
        notifies: bool = True,
        with_subscriptions: bool = True,
        fingerprint: int = 0,
    ) -> bool:
        """Apply a group's entry of a heartbeat; return True if a connection joined or the set of
        subscribed topics changed. The members' notices then wait for `take_notices`.

        The entry's subscriptions become the group's: topics that it lacks are dropped. A known
        topic's subscription is replaced by a higher subVersion than the group's (RocketMQ:
        ConsumerGroupInfo), or than the member's own last subVersion: subVersion is the client's
        clock, so a member with a slow clock could otherwise not change its filter.
        `with_subscriptions` False: only refresh the connection. Raises TooManyGroups, and then
        nothing has changed.
        """
        member = ConsumerConnection(client_id, peer.language, peer.version, now_ms)
        self._check_bounds(peer, member, data)
        group = self._groups.get(data.group_name)
        if group is None:
            self.members_size += _group_size(data.group_name)
            group = self._groups[data.group_name] = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.notifies = notifies
        changed = peer not in group.members
        if changed or group.members[peer].client_id != client_id:
            self._renumber(group)
        # Popped first so that the newest connection of a client comes last.
        former = group.members.pop(peer, None)
        self.members_size += member.size - (0 if former is None else former.size)
        group.members[peer] = member
        self._groups_of.setdefault(peer, set()).add(group.name)
        # Another client over the same connection has a clock of its own.
        own = former.sub_version if former and former.client_id == client_id else _NO_VERSION
        member.sub_version = own
        member.top_version = former.top_version if former and own != _NO_VERSION else own
        if with_subscriptions:
            versions = [one.sub_version for one in data.subscription_data_set]
            member.sub_version = max(versions, default=own)
            known = 0 if member.top_version == _NO_VERSION else member.top_version
            member.top_version = max(known, member.sub_version)
            changed |= _replace_subscriptions(group, data.subscription_data_set, own, member)
            group.fingerprint = fingerprint
            self._size -= group.size
            group.size = sum(one.size for one in group.subscriptions.values())
            self._size += group.size
        if changed:
            self._changed[group.name] = None
        self.on_change(group.name)
        return changed

    def unregister(self, peer: Peer, client_id: str, group_name: str) -> bool:
        """Remove a connection from a group; return False, and change nothing, if it is not in the
        group or has another client id there."""
        group = self._groups.get(group_name)
        if group is None or peer not in group.members:
            return False
        if group.members[peer].client_id != client_id:
            return False
        self._remove_member(group, peer)
        return True

    def peer_closed(self, peer: Peer) -> list[str]:
        """Remove a closed connection from its groups; return their names, sorted."""
        left = sorted(self._groups_of.pop(peer, ()))
        for name in left:
            self._remove_member(self._groups[name], peer)
        return left

    def find_expired(self, now_ms: int, expired_after_ms: int) -> list[Peer]:
        """Connections whose last heartbeat for any of their groups is older than
        `expired_after_ms`, unordered; the caller closes them, and they stay until `peer_closed`."""
        old = {
            peer: None
            for group in self._groups.values()
            for peer, member in group.members.items()
            if now_ms - member.last_update_ms > expired_after_ms
        }
        return list(old)

    def forget_compensated(self, now_ms: int, expired_after_ms: int) -> None:
        """Drop subscriptions that `remember_subscription` last got more than `expired_after_ms` ago
        (RocketMQ: 10 minutes)."""
        for pair, known in list(self._compensated.items()):
            if now_ms - known.updated_ms > expired_after_ms:
                self._drop_compensated(pair)

    def remember_subscription(
        self, group_name: str, topic: str, subscription: SubscriptionData, now_ms: int
    ) -> None:
        """Remember the subscription that a pull carried, for `find_subscription` (remoting.md
        10.3).

        It is ignored silently if the table has MAX_COMPENSATED bytes or its expression is longer
        than MAX_COMPENSATED_SIZE.
        """
        pair = group_name, topic
        known = self._compensated.get(pair)
        if known is not None and known.subscription == subscription:
            known.updated_ms = now_ms
            return
        self._drop_compensated(pair)
        size = _compensated_size(pair, subscription)
        if (
            len(subscription.sub_string) <= MAX_COMPENSATED_SIZE
            and self.compensated_size + size <= MAX_COMPENSATED
        ):
            self._compensated[pair] = _PulledSubscription(subscription, now_ms)
            self.compensated_size += size

    def count_connections(self) -> dict[tuple[str, str], int]:
        """Number of connections by (group, client language); absent pairs are left out."""
        return Counter(
            (name, member.language)
            for name, group in self._groups.items()
            for member in group.members.values()
        )

    def group(self, name: str) -> ConsumerGroup | None:
        """The table's own object of an online group, None if the group has no connection."""
        return self._groups.get(name)

    def find_subscription(self, group_name: str, topic: str) -> SubscriptionData | None:
        """The group's subscription of the topic: from heartbeats, else from
        `remember_subscription`, else None."""
        group = self._groups.get(group_name)
        if group is not None and topic in group.subscriptions:
            return group.subscriptions[topic]
        known = self._compensated.get((group_name, topic))
        return known.subscription if known else None

    def subscription_count(self, group_name: str) -> int:
        """Number of topics that the group subscribes to by heartbeat; 0 if it has no connection."""
        group = self._groups.get(group_name)
        return len(group.subscriptions) if group else 0

    def online_groups_of(self, topic: str) -> list[str]:
        """Names of the online groups that subscribe to the topic by heartbeat, sorted."""
        return sorted(name for name, group in self._groups.items() if topic in group.subscriptions)

    def take_notices(self) -> list[tuple[Peer, str]]:
        """Return and forget the pairs (connection, group) that need NOTIFY_CONSUMER_IDS_CHANGED
        (40), groups in the order of their first change. The caller sends them (`notify_changed`).

        Every member of a changed group is included, even the member that caused the change, unless
        `notifies` is off or the group broadcasts. A member that caused the change must get the
        answer to its heartbeat first: the Java client skips the rebalance while a heartbeat is in
        flight (observed).
        """
        changed, self._changed = self._changed, {}
        return [
            (peer, name)
            for name in changed
            if (group := self._groups.get(name)) is not None
            and group.notifies
            and group.message_model != BROADCASTING
            for peer in group.members
        ]

    def mark_changed(self, group_name: str) -> None:
        """Have the members of an online group included in the next `take_notices`: its assignment
        has changed."""
        if group_name in self._groups:
            self._changed[group_name] = None

    def _renumber(self, group: ConsumerGroup) -> None:
        """Give the group a new generation."""
        self._generations += 1
        group.generation = self._generations

    def _drop_compensated(self, pair: tuple[str, str]) -> None:
        """Forget the subscription that pulls carried for a pair (group, topic), if there is one."""
        known = self._compensated.pop(pair, None)
        if known is not None:
            self.compensated_size -= _compensated_size(pair, known.subscription)

    def _remove_member(self, group: ConsumerGroup, peer: Peer) -> None:
        """Remove a member from its group; a group without members is removed."""
        self.members_size -= group.members.pop(peer).size
        self._renumber(group)
        groups_of_peer = self._groups_of.get(peer)
        if groups_of_peer is not None:
            groups_of_peer.discard(group.name)
            if not groups_of_peer:
                del self._groups_of[peer]
        if group.members:
            self._changed[group.name] = None
        else:
            del self._groups[group.name]
            self.members_size -= _group_size(group.name)
            self._size -= group.size
            self._changed.pop(group.name, None)
        self.on_change(group.name)

    def _check_bounds(self, peer: Peer, member: ConsumerConnection, data: ConsumerData) -> None:
        """Raise TooManyGroups if the heartbeat's entry exceeds a limit."""
        known = self._groups_of.get(peer, ())
        if data.group_name not in known and len(known) >= MAX_GROUPS_OF_PEER:
            raise TooManyGroups(f"one connection consumes for over {MAX_GROUPS_OF_PEER} groups")
        if len(data.subscription_data_set) > MAX_SUBSCRIPTIONS:
            raise TooManyGroups(f"a group subscribes over {MAX_SUBSCRIPTIONS} topics")
        held = self._groups.get(data.group_name)
        joins = data.group_name not in known
        size = member.size + (_group_size(data.group_name) if held is None else 0)
        if joins and self.members_size + size > MAX_MEMBERS:
            raise TooManyGroups(f"all connected consumers need more than {MAX_MEMBERS} bytes")
        others = self._size - (held.size if held is not None else 0)
        if others + sum(one.size for one in data.subscription_data_set) > MAX_SUBSCRIBED:
            raise TooManyGroups(f"all subscriptions have more than {MAX_SUBSCRIBED} bytes")


def _group_size(name: str) -> int:
    """Estimated bytes of a group in the table, without its members."""
    return 2 * _MEMBER_SIZE + kept_size(name)


def _compensated_size(pair: tuple[str, str], subscription: SubscriptionData) -> int:
    """Estimated bytes of a subscription that a pull carried."""
    return subscription.size + kept_size(*pair) + 250


def _replace_subscriptions(
    group: ConsumerGroup,
    wanted: list[SubscriptionData],
    own_version: int,
    member: ConsumerConnection,
) -> bool:
    """Replace the group's subscriptions by the newest heartbeat's; return whether the set of topics
    changed. The group's subVersion never goes back: pulls of other members carry theirs, and the
    broker refuses a pull whose version is higher than the group's. The exception is a version
    higher than each member's: the members that sent it have left, and the subscription of the
    highest remaining member takes its place."""
    highest = max(one.top_version for one in group.members.values())
    before = set(group.subscriptions)
    for subscription in wanted:
        known = group.subscriptions.get(subscription.topic)
        is_left = known is not None and known.sub_version > highest == member.sub_version
        if known is None or is_left or subscription.sub_version > known.sub_version:
            group.subscriptions[subscription.topic] = subscription
        elif own_version < subscription.sub_version:
            newer = replace(subscription, sub_version=known.sub_version)
            group.subscriptions[subscription.topic] = newer
    named = {subscription.topic for subscription in wanted}
    for topic in before - named:
        del group.subscriptions[topic]
    return before != named


def notify_changed(peer: Peer, group: str) -> None:
    """Send NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, to a member, so that it requests its group's
    queues again."""
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    peer.notify(new_request(code, NotifyConsumerIdsChangedRequest(group), oneway=True))

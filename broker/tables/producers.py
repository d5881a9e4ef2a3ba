"""Connections of every producer group, by heartbeat.

Owns the table group -> connections and the connection of each client id (RocketMQ:
ProducerManager). It must never send, close or read a clock. `now_ms` is a time of the monotonic
clock.

Tests: tests/unit/broker/tables/test_consumers.py
"""

from dataclasses import dataclass
from typing import Final

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.names import kept_size

MAX_GROUPS_OF_PEER: Final = 1_000
"""Maximum producer groups per connection, else TooManyProducerGroups; a client has a handful."""


MAX_SIZE: Final = 96 << 20
"""Maximum estimated bytes of the connections of all groups, else TooManyProducerGroups: 16,000
connections with a dozen groups each."""

_MEMBER_SIZE: Final = 400
"""Bytes of a member besides its client id; a group takes as many besides its name."""


class TooManyProducerGroups(Exception):
    """A heartbeat exceeds MAX_GROUPS_OF_PEER of its connection, or MAX_SIZE."""


@dataclass(slots=True)
class ProducerConnection:
    """A connection that produces for a group (RocketMQ: ClientChannelInfo).

    `language` and `version` are the client's, as in its requests; `last_update_ms` is the time of
    its last heartbeat by the monotonic clock.
    """

    client_id: str
    language: str
    version: int
    last_update_ms: int

    @property
    def size(self) -> int:
        """Estimated bytes of this connection in the table."""
        return _MEMBER_SIZE + kept_size(self.client_id)


class ProducerTable:
    """The producer groups by name, with their producers by connection; a group stays while it has a
    connection."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Peer, ProducerConnection]] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        self._clients: dict[str, Peer] = {}
        self._client_of: dict[Peer, str] = {}
        self._by_host: dict[bytes, Peer] = {}
        self.size = 0
        """Estimated bytes of groups and their members."""

    def register(self, peer: Peer, client_id: str, group: str, now_ms: int) -> None:
        """Add a connection to a group, or refresh it; `find` then returns it for this client id.
        Raises TooManyProducerGroups, and then nothing has changed."""
        mine = self._groups_of.get(peer, set())
        producer = ProducerConnection(client_id, peer.language, peer.version, now_ms)
        members = self._groups.get(group, {})
        size = producer.size + (0 if members else _group_size(group))
        if group not in mine:
            if len(mine) >= MAX_GROUPS_OF_PEER:
                raise TooManyProducerGroups(
                    f"one connection produces for over {MAX_GROUPS_OF_PEER} groups"
                )
            if self.size + size > MAX_SIZE:
                raise TooManyProducerGroups(
                    f"all connected producers need more than {MAX_SIZE} bytes"
                )
            mine.add(group)
            self._groups_of[peer] = mine
        former = members.get(peer)
        self.size += size - (0 if former is None else former.size)
        members[peer] = producer
        self._groups[group] = members
        if self._client_of.get(peer) != client_id:
            self._forget_client(peer)
            self._client_of[peer] = client_id
        self._clients[client_id] = self._by_host[peer.host] = peer

    def unregister(self, peer: Peer, group: str) -> None:
        """Remove a connection from a group, if it is a member; without its last group, its client
        id is forgotten, too."""
        self._remove_member(group, peer)
        mine = self._groups_of.get(peer)
        if mine is not None:
            mine.discard(group)
            if not mine:
                self._forget_connection(peer)

    def peer_closed(self, peer: Peer) -> None:
        """Remove a closed connection from all its groups, and its client id."""
        for group in self._groups_of.get(peer, ()):
            self._remove_member(group, peer)
        self._forget_connection(peer)

    def find_expired(self, now_ms: int, expired_after_ms: int) -> list[Peer]:
        """Connections whose last heartbeat for any of their groups is older than
        `expired_after_ms`, unordered; the caller closes them, and they stay until `peer_closed`."""
        old = {
            peer: None
            for members in self._groups.values()
            for peer, producer in members.items()
            if now_ms - producer.last_update_ms > expired_after_ms
        }
        return list(old)

    def producers_of(self, name: str) -> dict[Peer, ProducerConnection]:
        """The group's producers by connection; a copy, empty if the group has no connection."""
        return dict(self._groups.get(name, {}))

    def all_producers(self) -> dict[str, dict[Peer, ProducerConnection]]:
        """Producers by group and connection, for each group with a connection; only the outer table
        is a copy."""
        return dict(self._groups)

    def next_connection(self, group: str, host: bytes = b"") -> Peer | None:
        """Return an open connection of the group: the last registered connection from the packed
        address `host` if it is a member, else the members in turn, call by call; None without an
        open connection (RocketMQ: getAvailableChannel, which has no preference)."""
        members = self._groups.get(group, {})
        own = self._by_host.get(host)
        if own is not None and own in members and not own.closed:
            return own
        for peer in members:
            if not peer.closed:
                members[peer] = members.pop(peer)
                return peer
        return None

    def find(self, client_id: str) -> Peer | None:
        """The connection that registered this client id last, or None; for the reply to a client's
        request."""
        return self._clients.get(client_id)

    def _remove_member(self, group: str, peer: Peer) -> None:
        """Remove a connection from a group; a group without connections is removed."""
        members = self._groups.get(group, {})
        left = members.pop(peer, None)
        if left is not None:
            self.size -= left.size
            if not members:
                del self._groups[group]
                self.size -= _group_size(group)

    def _forget_connection(self, peer: Peer) -> None:
        """Forget the client id and the host of a connection without groups."""
        self._groups_of.pop(peer, None)
        self._forget_client(peer)
        if self._by_host.get(peer.host) is peer:
            del self._by_host[peer.host]

    def _forget_client(self, peer: Peer) -> None:
        """Forget the client id of a connection."""
        client_id = self._client_of.pop(peer, None)
        if client_id is not None and self._clients.get(client_id) is peer:
            del self._clients[client_id]


def _group_size(name: str) -> int:
    """Estimated bytes of a group in the table, without its connections."""
    return _MEMBER_SIZE + kept_size(name)

"""The master of default HA: its replicas are counted, no set is agreed on.

Counts the replicas that have a message, by the bytes that they lack. There are no epochs; the part
common with AutoSwitch HA is in leader.py.
"""

from collections.abc import Callable

from turbopump.broker.ha.leader import MasterTerm, MasterTermDeps, ReplicaLink
from turbopump.broker.replication import LeaderStatus, ReplicaStatus, ReplicationLag
from turbopump.engine.types import LogOffset
from turbopump.net.ha.acks import Mode, copies_needed
from turbopump.net.ha.actions import Acked
from turbopump.net.ha.default_ha import DefaultHaGroup, DefaultHaPrimary
from turbopump.net.ha.primary import MasterSide


class DefaultHaLeader(MasterTerm):
    """A master's term in default HA: counts the replicas that have a message, without epochs and
    SyncStateSet."""

    def __init__(self, deps: MasterTermDeps, *, gap_max: int) -> None:
        """`gap_max`: a replica that lacks more bytes does not count as having a message."""
        self.group = DefaultHaGroup(gap_max)
        """The acknowledged log offsets of all connections."""
        self._behind: dict[int, ReplicationLag] = {}
        super().__init__(deps, self.group)

    def copies_needed(self) -> int | None:
        """Return the configured number of copies, the master's included; never None."""
        # Called after each commit; without a controller the count changes nothing.
        if self.rules.mode is Mode.PLAIN:
            return self.rules.in_sync_replicas
        return copies_needed(self.rules, self.group.in_sync_count(self._log.end))

    def status(self, address_of: Callable[[int], str], now_ms: int) -> LeaderStatus:
        """Return the replicas, without a SyncStateSet; see MasterTerm."""
        end = self._log.end
        replicas = tuple(
            ReplicaStatus(
                address_of(link.connection),
                None,
                link.machine.acked,
                link.machine.next,
                link.machine.acked >= 0 and end - link.machine.acked < self.group.gap_max,
                behind_ms=self._behind[link.connection].lag_ms(end, now_ms),
                bytes_per_second=link.rate.per_second(now_ms),
            )
            for link in self.links.values()
        )
        return LeaderStatus(replicas)

    def _make_machine(self, connection: int, now_ms: int) -> MasterSide:
        """Make the state machine of a replica's new connection, and begin to measure the replica's
        lag."""
        self._behind[connection] = ReplicationLag(now_ms)
        return DefaultHaPrimary(self.options.primary, self._log, connection, now_ms)

    def _on_acked(self, link: ReplicaLink, acked: Acked, now_ms: int) -> None:
        """Note the log offset up to which a replica has acknowledged."""
        self.group.on_ack(link.connection, acked.log_offset)
        self._behind[link.connection].on_ack(acked.log_offset, self._log.end, now_ms)

    def _on_gone(self, link: ReplicaLink, now_ms: int) -> None:
        """Forget a replica whose connection is closed."""
        self.group.on_closed(link.connection)
        del self._behind[link.connection]

    def _on_protocol_tick(self, now_ms: int) -> None:
        """Measure the replicas' lags."""
        for behind in self._behind.values():
            behind.on_tick(self._log.end, now_ms)

    def _confirmed_end(self, log_end: LogOffset) -> LogOffset:
        """Return `log_end`: readers need not wait for replicas."""
        return log_end

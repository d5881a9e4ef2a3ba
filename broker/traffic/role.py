"""The broker's current role, and the copies that a send must wait for in it.

Owns the current role and the two questions of each send: may it be written, and may its sender be
answered. It must never lead or follow: `broker/ha` does, and sets the term here.

    before the append   admit()      a permit: number of copies the message needs; or
                                     SERVICE_NOT_AVAILABLE of a replica, IN_SYNC_REPLICAS_NOT_ENOUGH
    after it            when_safe()  durable by flushDiskType, and with that number of copies

The native lane does not ask: the term's number of copies is set in the list that the lane fills.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, LogOffset, PutStatus
from turbopump.net.wire.route import MASTER_ID

ALONE: Final = 1
"""Number of copies of a message if no send waits for a replica: the master's own."""


class SendTerm(Protocol):
    """A master's term, as Role uses it for sends (broker/ha/leader.py)."""

    has_ended: bool
    """Whether the term has ended for good; another may have begun."""

    def copies_needed(self) -> int | None:
        """Return the number of copies that the next message needs, the master's included, or
        net.ha.acks.ALL; 0 and 1: no wait. None: not enough replicas are in sync."""


@dataclass(slots=True, frozen=True)
class Permit:
    """Permission to write a message now, with the conditions that its sender waits for."""

    copies: int = ALONE
    """Copies of the message, as `SendTerm.copies_needed` counts them."""
    term: SendTerm | None = None
    """Term in which the message is written; None for a broker without replication."""


class Put(NamedTuple):
    """Result of an append; pass both fields to `Role.when_safe`."""

    appended: Appended
    permit: Permit = Permit()


class Role:
    """The role of a broker: the master, a replica, or a replica that acts as master; and the copies
    that a send must wait for in it. A configured master is master from the start; the waits of its
    sends are known once its term began. Loop thread only."""

    def __init__(
        self,
        config: ReplicationConfig,
        broker_id: int,
        store: Store,
    ) -> None:
        self.broker_id = broker_id
        """Broker id that name servers show: 0 while this is the master."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each change of the role, when the new role is set: registration, fast path,
        transactions, waiting pulls and pops, the health that gRPC reports."""
        self.has_lease: Callable[[], bool] = lambda: True
        """Whether the master's lease is valid; without controllers there are no leases, and it is
        always True."""
        self.has_master: Callable[[], bool] = lambda: False
        """Whether a replica is connected to its master."""
        self.is_known = not (config.is_elected or config.waits_to_lead)
        """Whether the role has been determined since the start. Before that nothing is written or
        read (R29), and nothing is registered at name servers (R32)."""
        self.is_acting = False
        """Whether this replica serves consumers for its dead master (RIP-32), or this master does
        so without a lease of the controllers. Only broker/ha/acting changes it."""
        self._config = config
        self._store = store
        self._is_slave = config.is_slave or not self.is_known
        self._term: SendTerm | None = None

    @property
    def is_master(self) -> bool:
        """Whether this broker is a master: it stores messages if its term has begun
        (`is_active_master`, `admit_append`). False before the role is known."""
        return not self._is_slave

    @property
    def term(self) -> SendTerm | None:
        """The current term; None for a replica, between two terms, and without replication."""
        return None if self._term is None or self._term.has_ended else self._term

    @property
    def is_active_master(self) -> bool:
        """Whether this is the master and its role is known, with a valid lease where controllers
        elect."""
        return self.is_master and self.is_known and self.has_lease()

    @property
    def may_change_offsets(self) -> bool:
        """Whether this broker may change consumers' offsets and locks now: in a group with acting
        replicas only the master or the acting replica may (I13)."""
        if not self._config.enable_slave_acting_master:
            return True
        return self.is_acting or self.is_active_master

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Apply settings that may change at run time; the role and the use of replication stay."""
        self._config = config

    # Changes by broker/ha.

    def become_master(self, term: SendTerm) -> None:
        """Make this broker the master of a new term, with broker id 0, and call `on_change`. A
        previous term has ended."""
        self._term = term
        self.is_known = True
        self._is_slave, self.broker_id = False, MASTER_ID
        self._notify_change()

    def become_replica(self, broker_id: int) -> None:
        """Make this broker a replica with that id, and call `on_change`: nothing is written from
        now. The caller ends the term itself, so that pending sends fail."""
        self._term, self._is_slave, self.broker_id = None, True, broker_id
        self.is_known = True
        self._notify_change()

    # Questions of sends.

    def admit_append(self, waits: bool = True) -> Permit | PutStatus:
        """Return a permit for an append that follows at once, in this turn of the loop, or the
        status why nothing may be written now.

        A message whose sender does not wait (WAIT=false) may be written with any number of replicas
        in sync, as in RocketMQ.
        """
        term = self.term
        if self._is_slave:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self._config.needs_replication and (term is None or not self.has_lease()):
            return PutStatus.SERVICE_NOT_AVAILABLE
        copies = self._copies_needed(term) if waits else ALONE
        return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH if copies is None else Permit(copies, term)

    def when_safe(self, appended: Appended, permit: Permit) -> Deferred[PutStatus]:
        """Resolve with the final status for the sender of a message that was just appended under
        that permit: at once if the append failed. SERVICE_NOT_AVAILABLE: the term ended, so the
        outcome is unknown; for time-outs see Store.when_safe."""
        term = permit.term
        if appended.status is PutStatus.PUT_OK and term is not None and term.has_ended:
            # The term ended within the append: the outcome of the message is unknown.
            return Deferred.resolved(PutStatus.SERVICE_NOT_AVAILABLE)
        return self._store.when_safe(appended, permit.copies)

    def safe_end(self) -> LogOffset:
        """Return the log offset up to which the log has as many copies as a new message needs; -1
        if there cannot be as many."""
        term = self.term
        if self._config.needs_replication and (term is None or not self.has_lease()):
            return LogOffset(-1)
        copies = self._copies_needed(term)
        return LogOffset(-1 if copies is None else self._store.pending.safe_end(copies))

    def _copies_needed(self, term: SendTerm | None) -> int | None:
        """The number of copies that the next message needs in this term; ALONE without a term."""
        return ALONE if term is None else term.copies_needed()

    def _notify_change(self) -> None:
        """Call the callbacks for a change of role."""
        for callback in self.on_change:
            callback()

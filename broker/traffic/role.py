"""What this broker is to its group now, and what that means for a message that is to be written.

Owns the role in force and the question each send asks twice: may it be written, and may its sender
be answered. It must never lead or follow: `broker/ha` does, and says here whose reign
it is. Called by everything that appends (puts.py, delay.py), by the registration and by the pulls.

    before the append   admit()      a permit: how many copies the message needs; or
                                     SERVICE_NOT_AVAILABLE of a replica, IN_SYNC_REPLICAS_NOT_ENOUGH
    after it            when_safe()  durable as flushDiskType says, and with so many copies

The native lane asks nothing: what the reign says of copies is pushed to the list that it fills.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, LogOffset, PutStatus

MASTER_ID: Final = 0
"""The broker id of a master (MixAll.MASTER_ID)."""
ALONE: Final = 1
"""Copies of a message where no send waits for a replica: the master's own."""


class ReignOfSends(Protocol):
    """A master's reign as its sends see it (broker/ha/leader.py)."""

    over: bool
    """Whether it has ended: another one may have begun."""

    def need(self) -> int | None:
        """How many copies a message needs that is about to be written, the master's included, or
        net.ha.acks.ALL; 0 and 1: no wait. None: not enough replicas are in sync."""


@dataclass(slots=True, frozen=True)
class Permit:
    """That a message may be written now, and what its sender has to wait for."""

    copies: int = ALONE
    """Of the message, as `ReignOfSends.need` counts them."""
    reign: ReignOfSends | None = None
    """In which it is written; None of a broker that does not replicate."""


class Put(NamedTuple):
    """What became of a message that was to be appended; `Role.when_safe` takes both."""

    appended: Appended
    permit: Permit = Permit()


class Role:
    """The role of a broker. A master is one from the start; what its sends may have to wait for is
    known once its reign began. Loop thread only."""

    def __init__(
        self,
        config: ReplicationConfig,
        broker_id: int,
        store: Store,
    ) -> None:
        self.broker_id = broker_id
        """What name servers show: 0 while this is the master."""
        self.on_change: list[Callable[[], None]] = []
        """Called after the role has changed: registration, native path, delayed messages."""
        self.holds: Callable[[], bool] = lambda: True
        """Whether a master's lease does; without a controller there is none to lose."""
        self.has_master: Callable[[], bool] = lambda: False
        """Whether a replica is connected with its master."""
        self.is_known = not (config.is_elected or config.waits_to_lead)
        """Whether the role was ever said, in this life. Before that nothing is written nor read
        (R29), and no name server hears of this broker (R32)."""
        self.is_acting = False
        """Whether this replica does for consumers what its master did, which is gone (RIP-32); or
        this master, which controllers grant no lease. Only broker/ha/acting changes it."""
        self._config = config
        self._store = store
        self._is_slave = config.is_slave or not self.is_known
        self._reign: ReignOfSends | None = None

    @property
    def is_master(self) -> bool:
        """Whether this broker takes messages."""
        return not self._is_slave

    @property
    def reign(self) -> ReignOfSends | None:
        """The one in force; None of a replica, between two reigns, and without replication."""
        return None if self._reign is None or self._reign.over else self._reign

    @property
    def leads(self) -> bool:
        """Whether this is the master, and under a lease where controllers elect."""
        return self.is_master and self.is_known and self.holds()

    @property
    def keeps_progress(self) -> bool:
        """Whether consumers' offsets and locks are this broker's to change now: in a group whose
        replicas act, those of the master or of the one replica that acts (I13)."""
        if not self._config.enable_slave_acting_master:
            return True
        return self.is_acting or self.leads

    def reconfigure(self, config: ReplicationConfig) -> None:
        """What may change while a broker runs: neither its role nor whether it replicates."""
        self._config = config

    # What broker/ha says.

    def begin(self, reign: ReignOfSends) -> None:
        """This broker is the master; the reign before, if there was one, has ended."""
        self._reign = reign
        self.is_known = True
        self._is_slave, self.broker_id = False, MASTER_ID
        self._changed()

    def end(self, broker_id: int) -> None:
        """This broker is a replica under that id: nothing is written, pending sends fail."""
        self._reign, self._is_slave, self.broker_id = None, True, broker_id
        self.is_known = True
        self._changed()

    # What a message has to ask.

    def admit(self, waits: bool = True) -> Permit | PutStatus:
        """A permit for one append that follows at once, or why nothing may be written now.

        A message whose sender does not wait (WAIT=false) may be written however few replicas are in
        sync, as in RocketMQ.
        """
        reign = self.reign
        if self._is_slave:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self._config.replicates and (reign is None or not self.holds()):
            return PutStatus.SERVICE_NOT_AVAILABLE
        copies = self._need(reign) if waits else ALONE
        return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH if copies is None else Permit(copies, reign)

    def when_safe(self, appended: Appended, permit: Permit) -> Later[PutStatus]:
        """The status to answer the sender with whose message was just appended, under that
        permit."""
        reign = permit.reign
        if appended.status is PutStatus.PUT_OK and reign is not None and reign.over:
            # It ended within the append: the outcome of the message is unknown.
            told: Later[PutStatus] = Later()
            told.resolve(PutStatus.SERVICE_NOT_AVAILABLE)
            return told
        return self._store.when_safe(appended, permit.copies)

    def safe_end(self) -> LogOffset:
        """Up to where the log has as many copies as a message needs that is written now; nowhere if
        there cannot be as many."""
        reign = self.reign
        if self._config.replicates and (reign is None or not self.holds()):
            return LogOffset(-1)
        copies = self._need(reign)
        return LogOffset(-1 if copies is None else self._store.pending.safe_end(copies))

    def _need(self, reign: ReignOfSends | None) -> int | None:
        return ALONE if reign is None else reign.need()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()

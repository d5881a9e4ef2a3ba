"""What this broker is to its group now, and what that means for a message that is to be written.

Owns the role in force and the question each send asks twice: may it be written, and may its sender
be answered. It must never lead or follow: `broker/ha` does, and says here whose reign
it is. Called by everything that appends (puts.py, delay.py, the native lane through fast_lane.py),
by the registration and by the pulls.

    before the append   refusal()    SERVICE_NOT_AVAILABLE of a replica, IN_SYNC_REPLICAS_NOT_ENOUGH
    after it            when_safe()  durable as flushDiskType says, and with the replicas

A bad answer of the replicas counts more than a bad one of the disk, as in RocketMQ.
"""

from collections.abc import Callable
from typing import Final, Protocol

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.engine.later import Later
from turbopump.engine.log.epochs import LOG_OFFSET_MAX
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, LogOffset, PutStatus

MASTER_ID: Final = 0
"""The broker id of a master (MixAll.MASTER_ID)."""
ALONE: Final = 1
"""Copies of a message where no send waits for a replica: the master's own."""


class ReignOfSends(Protocol):
    """A master's reign as its sends see it (broker/ha/leader.py). Deadlines are of the monotonic
    clock."""

    on_moved: Callable[[], None]
    """Called when `need` or `safe_end` may have another answer: after acknowledgements, changes of
    the set, ticks."""
    on_end: Callable[[], None]
    """Called when it is over."""

    def need(self) -> int | None:
        """How many copies a message needs that is about to be written, the master's included, or
        net.ha.acks.ALL; 0 and 1: no wait. None: not enough replicas are in sync."""

    def safe_end(self, need: int) -> LogOffset:
        """Up to where so many copies have the log; -1 if there are not as many."""

    def wait(self, log_end: LogOffset, need: int, deadline_ms: int) -> Later[PutStatus]:
        """PUT_OK once so many have the log up to there, FLUSH_SLAVE_TIMEOUT at the deadline, and
        what is no success when the reign ends."""


class Role:
    """The role of a broker. A master is one from the start; what its sends may have to wait for is
    known once its reign began. Loop thread only."""

    def __init__(
        self,
        config: ReplicationConfig,
        broker_id: int,
        store: Store,
        steady_ms: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        """What name servers show: 0 while this is the master."""
        self.reign: ReignOfSends | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called after the role has changed: registration, native path, delayed messages."""
        self.on_moved: Callable[[], None] = lambda: None
        """Called when sends may be answered, or refused, that were not before."""
        self.on_lapse: Callable[[], None] = lambda: None
        """Called when the lease is over: no pending send may succeed."""
        self.holds: Callable[[], bool] = lambda: True
        """Whether a master's lease does; without a controller there is none to lose."""
        self.has_master: Callable[[], bool] = lambda: False
        """Whether a replica is connected with its master."""
        self.is_known = not config.is_elected
        """Whether the role was ever said, in this life. Before that nothing is written nor read
        (R29), and no name server hears of this broker (R32)."""
        self._config = config
        self._store = store
        self._steady_ms = steady_ms
        self._ticked_ms = steady_ms()
        self._is_slave = config.is_slave or config.is_elected
        self._need: int | None = ALONE

    @property
    def is_master(self) -> bool:
        """Whether this broker takes messages."""
        return not self._is_slave

    @property
    def need(self) -> int | None:
        """Copies that a message needs which is written now; see `ReignOfSends.need`. Sends of an
        ASYNC_MASTER do not wait; between two reigns there is no number that is enough."""
        reign, config = self.reign, self._config
        if reign is None:
            return None if config.replicates else ALONE
        if not self.holds():
            return None
        if not config.waits:
            return ALONE
        return reign.need()

    def reconfigure(self, config: ReplicationConfig) -> None:
        """What may change while a broker runs: neither its role nor whether it replicates."""
        self._config = config

    def tick(self) -> None:
        """Every 100 ms: sends wait from the last one on, as those that are held natively."""
        self._ticked_ms = self._steady_ms()

    # What broker/ha says.

    def begin(self, reign: ReignOfSends) -> None:
        """This broker is the master; the reign before, if there was one, has ended."""
        self.reign = reign
        self.is_known = True
        self._is_slave, self.broker_id = False, MASTER_ID
        reign.on_moved, reign.on_end = self._moved, self._reign_ended
        self._changed()

    def end(self, broker_id: int) -> None:
        """This broker is a replica under that id: nothing is written, pending sends fail."""
        self._is_slave, self.broker_id = True, broker_id
        self.is_known = True
        self._changed()

    def lapse(self) -> None:
        """The lease is over: sends are refused until `renew`."""
        self.on_lapse()

    def renew(self) -> None:
        """It holds again."""
        self.on_moved()

    # What a message has to ask.

    def refusal(self, waits: bool = True) -> PutStatus | None:
        """Why nothing may be written now, None if it may; to be asked right before an append.

        A message whose sender does not wait (WAIT=false) may be written however few replicas are in
        sync, as in RocketMQ.
        """
        if self._is_slave:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self._config.replicates and (self.reign is None or not self.holds()):
            return PutStatus.SERVICE_NOT_AVAILABLE
        self._need = self.need if waits else ALONE
        return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH if self._need is None else None

    def when_safe(self, appended: Appended) -> Later[PutStatus]:
        """The status to answer the sender with whose message was just appended."""
        durable = self._store.when_safe(appended)
        reign, need = self.reign, self._need
        if appended.status is not PutStatus.PUT_OK:
            return durable
        if reign is None and self._config.replicates:
            # It ended within the append: the outcome of the message is unknown.
            told: Later[PutStatus] = Later()
            told.resolve(PutStatus.SERVICE_NOT_AVAILABLE)
            return told
        if reign is None or need is None or 0 <= need <= ALONE:
            return durable
        deadline_ms = self._ticked_ms + self._config.slave_timeout_ms
        return _both(durable, reign.wait(appended.end, need, deadline_ms))

    def safe_end(self) -> LogOffset:
        """Up to where the log has as many copies as a message needs that is written now."""
        return self.safe_end_of(self.need)

    def safe_end_of(self, need: int | None) -> LogOffset:
        """Up to where the log has so many copies; nowhere if there cannot be as many (None)."""
        if need is None or not self.holds():
            return LogOffset(-1)
        reign = self.reign
        if reign is None and self._config.replicates:
            return LogOffset(-1)
        return LOG_OFFSET_MAX if reign is None or 0 <= need <= ALONE else reign.safe_end(need)

    def _moved(self) -> None:
        self.on_moved()

    def _reign_ended(self) -> None:
        """Until the next one, or until this broker is a replica, nothing is written."""
        self.reign = None

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()


def _both(durable: Later[PutStatus], replicated: Later[PutStatus]) -> Later[PutStatus]:
    """Bad news of the replicas at once; their PUT_OK is the disk's answer."""
    told: Later[PutStatus] = Later()

    def have(status: PutStatus) -> None:
        if status is PutStatus.PUT_OK:
            durable.then(told.resolve)
        else:
            told.resolve(status)

    replicated.then(have)
    return told

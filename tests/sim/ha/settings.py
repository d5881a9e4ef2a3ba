"""Configuration of a seed's brokers, and the result of a send."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from turbopump.broker.ha.leader import LeaderOptions
from turbopump.broker.ha.options import HaOptions
from turbopump.engine.config import StoreConfig
from turbopump.engine.types import FlushMode, PutStatus
from turbopump.net.ha.replica import ReplicaOptions

if TYPE_CHECKING:
    pass


ROOT = "/store"


@dataclass(slots=True, frozen=True)
class Options(HaOptions):
    """Options of a seed beside RocketMQ's keys."""

    in_flight_max: int = 1 << 20
    may_lose: bool = False
    """Whether the oracle may elect a broker that lacks confirmed bytes."""

    @property
    def leader_options(self) -> LeaderOptions:
        options = HaOptions.leader_options.__get__(self)
        return replace(options, primary=replace(options.primary, in_flight_max=self.in_flight_max))

    @property
    def replica_options(self) -> ReplicaOptions:
        options = HaOptions.replica_options.__get__(self)
        return replace(options, cut_confirmed=options.cut_confirmed or self.may_lose)


@dataclass(slots=True, frozen=True)
class Settings:
    """Common configuration of a seed's brokers."""

    store: StoreConfig
    ha: Options

    @property
    def is_sync(self) -> bool:
        return self.store.flush_disk_type is FlushMode.SYNC_FLUSH

    @property
    def safe(self) -> bool:
        """Whether confirmed and acknowledged messages must survive."""
        return self.ha.has_elections and self.ha.all_ack


@dataclass(slots=True)
class Sent:
    """A message that a master took."""

    epoch: int
    need: int
    start: int
    end: int
    body: bytes
    topic: str
    queue_id: int
    queue_offset: int
    status: list[PutStatus] = field(default_factory=list)
    """Status of the response, once there is one."""

    @property
    def acked(self) -> bool:
        """Whether the sender received success."""
        return self.status == [PutStatus.PUT_OK]

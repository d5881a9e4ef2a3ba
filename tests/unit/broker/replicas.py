"""A master's real leader machine with replicas that are only their acknowledgements."""

import struct

from tests.unit.broker.conftest import World

from turbopump.broker.ha.default_ha_leader import DefaultHaLeader
from turbopump.broker.ha.leader import MasterTermDeps
from turbopump.broker.lifecycle.replication_setup import options_of
from turbopump.engine.types import Buffer, PutStatus
from turbopump.net.ha.acks import AckRules, Mode

SYNC_MASTER = "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n"
NO_EPOCH = -1
GAP_MAX = 1 << 28


class Nowhere:
    """A transport that discards all bytes."""

    def connect(self, address: str) -> int:
        raise AssertionError("a master opens no connection")

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        return True

    def close(self, connection: int) -> None:
        pass


class Replicas:
    """A master and a single replica that acknowledges when a test calls `ack`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = world.broker.store.as_replicated(world.now_ms, plain=True)
        self.leader: DefaultHaLeader
        self._connections = 0
        self.begin()
        self.log.on_appended.append(lambda: self.leader.pump(world.steady_ms))
        world.ticks.append(lambda now_ms: self.leader.on_tick(now_ms))

    def begin(self) -> None:
        """Begin a term; its replica has no bytes yet."""
        world = self.world
        self.log.to_master(NO_EPOCH, world.now_ms)
        options = options_of(world.config)
        self.leader = DefaultHaLeader(
            MasterTermDeps(
                log=self.log,
                rules=options.ack_rules,
                options=options.leader_options,
                transport=Nowhere(),
                wall_ms=lambda: world.now_ms,
                now_ms=world.steady_ms,
            ),
            gap_max=GAP_MAX,
        )
        world.broker.role.become_master(self.leader)
        self.join()

    def join(self) -> None:
        """The replica connects, with an empty log."""
        self._connections += 1
        self.leader.on_connected(self._connections, self.world.steady_ms)
        self._report(0)

    def leave(self) -> None:
        """Break the replica's connection."""
        self.leader.on_closed(self._connections, "gone", self.world.steady_ms)

    def ack(self) -> None:
        """Acknowledge the whole log."""
        self._report(self.log.end)

    def too_few(self, on: bool) -> None:
        """Set whether fewer replicas are in sync than a message needs."""
        self.leader.rules = AckRules(Mode.CONTROLLER if on else Mode.PLAIN, 2, 3)
        self.leader.on_tick(self.world.steady_ms)

    def end(self) -> None:
        """End the master's term."""
        self.leader.end_term(PutStatus.SERVICE_NOT_AVAILABLE)
        self.log.to_replica(self.world.now_ms)

    def _report(self, log_end: int) -> None:
        report = struct.pack(">q", log_end)
        self.leader.on_bytes(self._connections, report, self.world.steady_ms)

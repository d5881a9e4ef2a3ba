"""Draws of a seed of the replication suite: the group and the kinds of trouble that may
happen.
"""

import hashlib
import random
from dataclasses import dataclass, replace

from tests.sim.broker.due_times import LEVELS_MS
from tests.sim.ha.broker import Broker
from tests.sim.ha.carried import CARRIED, Carried, carries, carrying
from tests.sim.ha.checkers import History
from tests.sim.ha.net import Network
from tests.sim.ha.oracle import Oracle
from tests.sim.ha.proposals import Proposals
from tests.sim.ha.settings import ROOT, Options, Settings
from tests.sim.store_seed import START_MS
from turbopump.broker.config.replication_config import BrokerRole
from turbopump.engine.config import StoreConfig
from turbopump.engine.types import FlushMode

# More than the largest record, as IN_FLIGHT_MAX is: an incomplete record is not acknowledged.
IN_FLIGHT_LEAST = 1700
# A second's, where the flow is controlled: a burst takes several.
FLOW_BYTES = 5000
TROUBLES = (
    "crash", "kill", "election", "partition", "one way", "reset", "stall", "lost answers",
    "retention", "writeback", "epochs", "slow disk", "small pieces", "cut off", "idle elections",
    "pause", "failing disk",
)  # fmt: skip
# Trouble that default HA cannot handle: it has no change of the leader, and no repair of a diverged
# log.
SWITCHING = {"election", "idle elections", "epochs", "cut off", "lost answers", "retention"}
PLAIN = 0.07
THEMED = 0.6


@dataclass(slots=True)
class Played:
    """Counts of a played seed."""

    acked: int = 0
    ends: int = 0


def store_config(rng: random.Random, *, sync: bool) -> StoreConfig:
    """A store of small files."""
    return StoreConfig(
        root=ROOT,
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=rng.choice((100, 400)),
        max_hash_slot_num=3,
        max_index_num=8,
        message_index_enable=rng.random() < 0.2,
        flush_disk_type=FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH,
        flush_commit_log_least_pages=0,
        flush_interval_consume_queue_ms=200,
        flush_consume_queue_thorough_interval_ms=rng.choice((300, 2000)),
        file_reserved_time_hours=1,
        max_message_size=2048,
    )


class Disks(list[Broker]):
    """All disks of the group, compared as one."""

    def digest(self) -> str:
        """A hash of all."""
        text = " ".join(broker.disk.digest() for broker in self)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class GroupSeed:
    """A group that has not been started yet."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.now_ms = 0
        self.troubles = {name for name in TROUBLES if rng.random() < 0.3}
        self.theme = rng.choice(TROUBLES) if rng.random() < THEMED else ""
        if about:
            self.theme = about[0]
            self.troubles.update(about)
        elif self.theme:
            self.troubles.add(self.theme)
        self.switches = bool(about) or rng.random() >= PLAIN
        if not self.switches:
            self.troubles -= SWITCHING
        self.retention = "retention" in self.troubles
        self.net = Network(rng)
        if "small pieces" not in self.troubles:
            self.net.windows, self.net.pieces = self.net.windows[1:], self.net.pieces[3:]
        self.history = History()
        self.played = Played()
        self.ends = 0
        self.number = 0
        self.cut_off: set[int] = set()
        """Brokers that do not reach the controller."""
        self.elected_life = 0
        """Number of the master process's life when it was elected."""
        settings = self._settings()
        self.carried: Carried | None = None
        if carries(seed) or CARRIED in about:
            self.carried, settings = Carried(self), carrying(settings)
        count = 2 if rng.random() < 0.3 else 3
        learner = count == 3 and rng.random() < 0.1
        self.brokers = [
            Broker(
                self,
                number,
                settings,
                learner=learner and number == 3,
                last_file=learner and number == 3 and rng.random() < 0.3,
            )
            for number in range(1, count + 1)
        ]
        for broker in self.brokers:
            broker.delay_levels_ms = LEVELS_MS if self.carried is not None else ()
            broker.disk.torn_pages = rng.random() < 0.2
            broker.disk.ordered = rng.random() < 0.2
            self.net.hosts[broker.name] = broker
        self.disk = Disks(self.brokers)
        voters = tuple(broker.number for broker in self.brokers if not broker.learner)
        self.oracle = Oracle(rng, voters)
        self.proposals = Proposals(rng, self.oracle, lambda: self.now_ms, self._joined)
        self.settings = settings

    @property
    def wall_ms(self) -> int:
        """Wall clock that is written to disks, in ms."""
        return START_MS + self.now_ms

    def _settings(self) -> Settings:
        rng = self.rng
        safe = rng.random() < 0.85
        sync = rng.random() < 0.6
        store = store_config(rng, sync=sync)
        # Seeds of even numbers let old files go that hold waiting messages.
        store = replace(store, keep_waiting_messages=self.seed % 2 == 1)
        return Settings(
            store,
            Options(
                broker_role=BrokerRole.SYNC_MASTER,
                enable_controller_mode=self.switches,
                sync_flush=sync,
                ha_send_heartbeat_interval_ms=500,
                ha_housekeeping_interval_ms=2000,
                ha_transfer_batch_size=rng.choice((60, 300, 4000)),
                ha_max_time_slave_not_catchup_ms=1500,
                in_sync_replicas=rng.choice((1, 2, 2)),
                min_in_sync_replicas=rng.choice((1, 1, 1, 2)),
                all_ack_in_sync_state_set=safe,
                in_flight_max=rng.choice((IN_FLIGHT_LEAST, 4000, 1 << 20)),
                ha_flow_control_enable=rng.random() < 0.25,
                max_ha_transfer_byte_in_second=FLOW_BYTES,
                may_lose=not sync and "crash" in self.troubles,
            ),
        )

    def reached(self, one: Broker, name: str) -> Broker | None:
        """Broker of that name if broker `one` can reach it now, else None."""
        other = next((other for other in self.brokers if other.name == name), None)
        is_apart = {(one.name, name), (name, one.name)} & self.net.blocked
        return (
            other if other is not None and other.up and not other.paused and not is_apart else None
        )

    def _some(self) -> Broker:
        return self.brokers[int(self.rng.random() * len(self.brokers))]

    def _up(self) -> Broker | None:
        broker = self._some()
        return broker if broker.up and not broker.paused else None

    def _joined(self, number: int) -> None:
        """Note that a broker joined the set: it has its master's epochs, so that damaged ones are
        repaired (seed 306355).
        """
        self.brokers[number - 1].epochs_damaged = False

"""A seed of the suite of acting replicas (RIP-32): a master, one or two replicas, one or two name
servers, consumers that commit; kills, restarts, pauses of processes and cuts of the network.

In virtual time, with the real parts of brokers and name servers. A seed without cuts has one broker
that keeps progress at any time; one with cuts has to agree in the end. In every third seed locks
need a majority, and two consumers request the same one.
"""

import random
from typing import Any
from unittest.mock import patch

from tests.sim.acting.lockers import YOUNG_MS, Locker
from tests.sim.acting.machines import READERS, SAVE_MS, TOPIC, Member, NameMachine, Reader
from tests.sim.acting.model import Model, offsets_of
from tests.sim.acting.operators import Operator
from tests.sim.acting.routing import route_request
from tests.sim.broker.remakes import REMADE_FROM
from tests.sim.group.calls import Trouble
from tests.sim.group.machines import CALL_TIMEOUT_MS
from tests.sim.ha.net import Network
from turbopump.broker.ha.acting import lock_quorum
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.offsets import UpdateConsumerOffsetRequest
from turbopump.net.wire.topics import TopicConfig

START_MS = 1_800_000_000_000
STEP_MS = 20
TICK_MS = 100
PLAY_MS = 40_000
SETTLE_MS = 30_000
QUIET_MS = 5_000
"""Time without trouble after which the right brokers act, and the master has the offsets of all."""
STILL_MS = 9_000
"""Pause of a master after which a replica acts for it."""
OLD_QUIET_MS = 12_000
"""QUIET_MS with old name servers: brokers detect again that a server is old after it was away."""


class Disks:
    """All disks of the group, compared as one."""

    def __init__(self, run: "Run") -> None:
        self._run = run

    def digest(self) -> str:
        """Hash of the disks' contents."""
        return " ".join(one.disk.digest()[:8] for one in self._run.brokers)


class Run:
    """Run of a seed."""

    start_ms = START_MS
    remade: tuple[str, str] | None = (TOPIC, READERS)
    """Topic and group that an operator deletes, from seed REMADE_FROM on."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.operator: Operator | None = None
        self._made: set[tuple[str, str]] = set()
        """Brokers, and topics that they have had."""
        rng = self.rng = random.Random(seed)
        self.now_ms = 0
        self.net = Network(rng)
        self.trouble = Trouble()
        self.has_cuts = rng.random() < (0.2 if seed % 4 == 2 else 0.4)
        self.model = Model(self)
        self.names = [NameMachine(self, f"names-{n}") for n in range(rng.choice((1, 1, 2)))]
        count = rng.choice((2, 2, 3))
        self.total = rng.choice((1, count))
        """Number of brokers in the group by the brokers' configuration."""
        self.is_calm = seed % 4 == 2
        """Whether trouble is rare, so that its consequences can be seen; consumers also pause at
        times, so that they do not hide them.
        """
        self.has_old_names = seed % 8 in (5, 6)
        """Whether name servers are RocketMQ 4's."""
        self.is_strict = seed % 3 == 1
        """Whether locks need a majority."""
        self.total = count if self.is_strict else self.total
        self.brokers = [Member(self, number) for number in range(count)]
        self.readers = [Reader(self, f"reader-{n}") for n in range(2)]
        self.lockers: list[Locker] = []
        if self.is_strict:
            self.lockers += [Locker(self, f"locker-{n}", self.lockers) for n in range(2)]
        if self.remade is not None and seed >= REMADE_FROM:
            self.operator = Operator(self, "operator", *self.remade)
        self.disk = Disks(self)
        self._back: dict[str, int] = {}
        self._troubled_ms = 0
        """Time of the last change of a machine."""

    @property
    def machines(self) -> list:
        """All machines of the group."""
        operators = [] if self.operator is None else [self.operator]
        return [*self.names, *self.brokers, *self.readers, *self.lockers, *operators]

    def play(self) -> Model:
        """Play the whole seed; AssertionError is a finding."""
        with patch.object(lock_quorum, "YOUNG_MS", YOUNG_MS):
            return self._play()

    def _play(self) -> Model:
        for one in self.machines:
            one.start()
        self._pass(8_000)
        while self.now_ms < (2 * PLAY_MS if self.is_calm else PLAY_MS):
            if self.operator is None or not self.operator.holds_trouble:
                self._trouble()
            self._pass(int(self.rng.random() * (12_000 if self.is_calm else 4_000)))
        self._heal()
        self._pass(SETTLE_MS)
        self.model.grants = sum(one.grants for one in self.lockers)
        self.readers.clear()
        self._pass(5_000)
        self.model.settled()
        return self.model

    def stand_still(self) -> None:
        """The master stands still, and a replica takes a commit that no consumer repeats."""
        self.has_cuts = True  # the master that stands still believes that it keeps progress
        self._begin_story()
        master = self.brokers[0]
        master.paused = True
        self._pass(STILL_MS)
        self._commit_where_it_acts()
        master.paused = False
        self._pass(SETTLE_MS)
        self.model.settled()

    def come_later(self) -> None:
        """A replica that acted comes back when its master serves already, and has a commit that no
        consumer repeats."""
        self.has_cuts = True  # only the end is checked
        self._begin_story()
        master, *replicas = self.brokers
        master.crash(power=False)
        self._pass(STILL_MS)
        acted = self._commit_where_it_acts()
        self._pass(2 * SAVE_MS)
        for one in replicas:
            one.crash(power=False)
        master.start()
        self._pass(STILL_MS)
        assert master.context is not None and master.context.role.may_change_offsets, "it waits"
        acted.start()
        self._pass(STILL_MS)
        for one in replicas:
            if one is not acted:
                one.start()
        self._pass(SETTLE_MS)
        self.model.settled()

    def _begin_story(self) -> None:
        """Start all machines, and pause the consumers."""
        for one in self.machines:
            one.start()
        self._pass(8_000)
        for one in self.readers:
            one.paused = True
        self._pass(1_000)

    def _commit_where_it_acts(self) -> Member:
        """A replica that acts takes a commit; which one."""
        acting = [one for one in self.brokers[1:] if one.context.role.is_acting]
        assert acting, "no replica acts"
        reader = self.readers[0]
        to = reader.position + 1
        header = UpdateConsumerOffsetRequest(READERS, TOPIC, reader.queue_id, to)
        request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        reader.endpoint.call(acting[0].endpoint.address, request, CALL_TIMEOUT_MS)
        self._pass(500)
        assert offsets_of(acting[0])[reader.queue_id] == to, "the commit is not there"
        return acting[0]

    # Remakes

    def masters(self) -> list:
        """All masters, that of the group first."""
        return [self.brokers[0]]

    def clients(self) -> list:
        """All users of the operator's topic and group."""
        return self.readers

    def is_served(self) -> bool:
        """Whether all masters are there, and that of the group serves."""
        return (
            all(one.up and not one.paused for one in self.masters())
            and self.brokers[0].context.role.is_master
            and self.brokers[0].context.role.may_change_offsets
        )

    def are_busy(self) -> bool:
        """Whether a client waits for an answer."""
        return any(one.is_busy for one in self.clients())

    @property
    def waits(self) -> bool:
        """Whether clients wait for the operator."""
        return self.operator is not None and self.operator.wants

    def leaves(self, *, is_gone: bool) -> None:
        """The topic is about to be deleted, if it `is_gone`, or the group."""

    def is_unsure(self) -> None:
        """Drop the knowledge about lives of the topic."""

    def route(self, topic: str = TOPIC) -> Command:
        """Route request for a name server; a topic that may be missing has the route of
        new topics.
        """
        return route_request(topic if self.operator is None else "TBW102")

    def knows(self, broker: Any, topic: str, consumers: str, queues: int) -> None:
        """Give a starting broker its topic and group; if an operator deletes topics, only at the
        broker's first start."""
        if self.operator is not None and (broker.name, topic) in self._made:
            return
        self._made.add((broker.name, topic))
        broker.context.topics.put(TopicConfig(topic, queues, queues), 1)
        if consumers:
            broker.context.groups.put(SubscriptionGroupConfig(consumers), 1)

    # Trouble

    def _trouble(self) -> None:
        rng = self.rng
        draw = rng.random()
        up = [one for one in self.brokers if one.up]
        acting = [one for one in up if one.context.role.is_acting]
        if self.is_calm and acting and draw < 0.3:
            # It has offsets that no other broker has, and comes back after its master.
            self._end(acting[0], 3_000, at_least_ms=6_000)
            self._back[self.brokers[0].name] = self.now_ms
            return
        if draw < 0.35 and self.brokers[0].up:
            self._end(self.brokers[0])
        elif draw < 0.5 and up:
            self._end(up[int(rng.random() * len(up))])
        elif draw < 0.6:
            self._end(self.names[int(rng.random() * len(self.names))])
        elif self.has_cuts and draw < 0.75:
            one, other = rng.sample(self.machines, 2)
            self.net.blocked |= {(one.name, other.name), (other.name, one.name)}
        elif self.has_cuts and draw < 0.85:
            self.net.blocked.clear()
        elif self.has_cuts and draw < 0.95 and self.net.links:
            self.net.reset(self.net.links[int(rng.random() * len(self.net.links))])
        elif self.has_cuts and up:
            one = up[int(rng.random() * len(up))]
            one.paused = True
            self._back[one.name] = self.now_ms + int(rng.random() * 9_000)

        if self.is_strict and draw > 0.9:
            for each in self.brokers:  # all of them forget their locks
                self._end(each, 1_500)

    def _end(
        self, machine: Member | NameMachine, away_ms: int = 9_000, at_least_ms: int = 0
    ) -> None:
        if machine.up:
            self._troubled_ms = self.now_ms
            machine.crash(power=False)
            back_ms = self.now_ms + at_least_ms + int(self.rng.random() * away_ms)
            self._back[machine.name] = back_ms

    def _heal(self) -> None:
        self.net.heal()
        if self.operator is not None:
            self.operator.rests = True
        self._back = dict.fromkeys(self._back, 0)

    def _come_back(self) -> None:
        for one in self.machines:
            if self._back.get(one.name, 1 << 60) <= self.now_ms:
                del self._back[one.name]
                self._troubled_ms = self.now_ms
                one.paused = False
                if not one.up:
                    one.start()

    # Time

    def _pass(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = self.net.now_ms = self.now_ms + STEP_MS
            self._come_back()
            for _ in range(4):
                if not self.net.sweep(0.9):
                    break
            for one in self.machines:
                if one.up and not one.paused:
                    one.turn()
                    if self.now_ms >= one.due_ms:
                        one.due_ms = self.now_ms + TICK_MS
                        one.tick()
            if self.operator is not None:
                self.operator.look()
            quiet_ms = OLD_QUIET_MS if self.has_old_names else QUIET_MS
            if not self.has_cuts and self.now_ms - self._troubled_ms > quiet_ms:
                self.model.quiet()


def run_seed(seed: int) -> Model:
    """Play one seed of this suite."""
    return Run(seed).play()


def run_stood_still(seed: int) -> None:
    """Play a master that stands still."""
    Run(seed).stand_still()


def run_comes_later(seed: int) -> None:
    """Play a replica that comes back later than its master."""
    Run(seed).come_later()

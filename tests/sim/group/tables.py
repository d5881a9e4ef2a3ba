"""State of a simulated broker beside its log: topics, groups and offsets, their files, and the real
follower that copies a master's; and the clerk, an operator and consumer that changes them.

`Tables` checks them: no known topic or group disappears unless it was deleted, and no offset
decreases unless it was set back (I13), neither during a life nor, once durable, over its end.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.broker.parts import SimParts
from tests.sim.broker.remakes import deletion_request, queues_request
from tests.sim.group.controller import addresses
from tests.sim.group.machines import (
    CLUSTER,
    DEAD_MS,
    GROUP,
    NAMES_ADDRESS,
    SEND_CODES,
    Client,
)
from tests.sim.ha.checkers import DOOMED
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.net.transport.dispatcher import Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import TopicConfig

if TYPE_CHECKING:
    from tests.sim.group.broker import GroupBroker
    from tests.sim.group.suite import Run

HEARTBEATS = 5
"""Heartbeats in the time after which a broker counts as dead."""
SAVE_MS = 1500
"""Interval in which offsets are saved."""
CODES = SEND_CODES | {
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.QUERY_NOT_FOUND,
}
"""Permitted codes of the clerk's responses."""
NAMES = ("one", "two", "three")
Where = tuple[str, str, int]
"""Topic, group and queue of an offset."""


class Tables:
    """Tables of a broker's life (see the module); also its interface for requests to other
    nodes.
    """

    def __init__(self, broker: "GroupBroker", store: Store) -> None:
        clock = broker.clock
        config = config_of(broker)
        self._broker = broker
        self._parts = SimParts(
            config,
            lambda: store,
            broker.disk,
            broker.work,
            broker.run_of.rng,
            wall_ms=lambda: clock.wall_ms,
            steady_ms=lambda: clock.now_ms,
            call_soon=broker.wire.call_soon,
            call=broker.endpoint.call,
            address=broker.endpoint.address,
            is_registered=True,
        )
        self.context, self.save_table = self._parts.context, self._parts.save_table
        self.context.offsets.adopted_at_once = 10  # one queue
        self._paused: list[Deferred[None]] = []
        self._saved_ms = clock.now_ms
        self._seen = (-1, -1, -1)
        self._names: frozenset[str] = frozenset()
        self._offsets: dict[Where, int] = {}

    def begin(self) -> None:
        """Check that everything durable was loaded."""
        kept = self._broker.kept
        self._compare(kept.names, kept.offsets, "did not survive its end")

    # Requests to other nodes

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        return self._broker.endpoint.call(address, request, timeout_ms)

    def next_turn(self) -> Deferred[None]:
        """Wait until the next tick, so that much happens between two steps."""
        later: Deferred[None] = Deferred()
        self._paused.append(later)
        return later

    async def stop(self) -> None:
        """No-op: the machine ends pending requests."""

    # Use by the broker

    def answer(self, request: Command, peer: Peer) -> Response:
        """Requests of operators, consumers and replicas."""
        return self._parts.table.dispatch(request, peer, self._broker.clock.wall_ms)

    def make_topic(self, name: str) -> None:
        """Create a topic as a send to an unknown topic does."""
        topics = self.context.topics
        if topics.get(name) is None:
            topics.put(TopicConfig(name, 2, 2), self._broker.clock.wall_ms)

    def tick(self) -> None:
        """Do the periodic work."""
        clock = self._broker.clock
        paused, self._paused = self._paused, []
        for later in paused:
            later.resolve(None)
        if clock.now_ms - self._saved_ms >= SAVE_MS and not self._parts.is_saving_offsets:
            self._saved_ms = clock.now_ms
            self._save()
        self.context.waiting.step(clock.now_ms)
        self._broker.run_of.broker_ticks(self._broker)
        self.look()

    def close(self) -> None:
        """Save and check at a clean end."""
        self.context.offsets.save()
        self.look()

    def _save(self) -> None:
        values = self.offsets()

        def saved() -> None:
            if self._broker.tables is self:
                self._broker.kept.offsets = values

        self._parts.save_offsets(saved)

    def cut(self) -> None:
        """Adapt the expected offsets after the log was truncated or restarted: an offset committed
        for records of another broker is set to the end of the queue here, until a master reports it
        (R14).
        """
        log, store, now = self._broker.replicated, self.context.store, self.offsets()
        if now == self._offsets:
            return
        for known in (self._offsets, self._broker.kept.offsets):
            for where, at in list(known.items()):
                topic, _, queue_id = where
                to = now.get(where, -1)
                if to < at and to == store.next_queue_offset(topic, queue_id):
                    known[where] = to
        if log.end == log.min:
            self._offsets = self._broker.kept.offsets = {}

    # Checks

    def names(self) -> frozenset[str]:
        """Names of topics and groups."""
        context = self.context
        topics = (f"topic {name}" for name in context.topics.all_topics())
        return frozenset((*topics, *(f"group {name}" for name in context.groups.all_groups())))

    def offsets(self) -> dict[Where, int]:
        """Committed offsets of groups."""
        committed = self.context.offsets.all_offsets().committed
        return {
            (*pair, queue_id): int(at)
            for pair, queues in committed.items()
            for queue_id, at in queues.items()
        }

    def look(self) -> None:
        """Check that no table lost entries.

        Usually nothing has changed: the change counters show that.
        """
        context, kept = self.context, self._broker.kept
        seen = (
            context.topics._topics.changes,
            context.groups._groups.changes,
            context.offsets._changes,
        )
        if seen != self._seen:
            self._seen = seen
            self._compare(self._names, self._offsets, "went")
        saved = context.saver.when_saved()
        if saved.done and saved.value is None:
            kept.names = self._names
        service = self._broker.service
        if service is not None and service.is_master and context.role.term is not None:
            known = context.topics.all_topics()
            missing = [name for name in context.store.topics() if name not in known]
            missing = [name for name in missing if not name.endswith(DOOMED)]
            assert not missing, f"{self._broker.name} leads without the topics {missing} (R20)"

    def _compare(self, names: frozenset[str], before: dict[Where, int], what: str) -> None:
        broker, clerk = self._broker, self._broker.run_of.clerk
        self._names, self._offsets = self.names(), self.offsets()
        if broker.run_of.may_lose or broker.epochs_damaged:
            return
        gone = {name for name in names - self._names if not name.endswith(DOOMED)}
        assert not gone, f"{broker.name}: {sorted(gone)} {what}"
        for where, at in before.items():
            now = self._offsets.get(where, -1)
            may_go = where in clerk.set_back or where[0].endswith(DOOMED)
            assert now >= at or may_go, (
                f"{broker.name}: offset {at} of {where} {what}, it is {now} (I13)"
            )

    def same(self, master: "Tables") -> str:
        """Difference between the tables of a replica and its master in a calm group, empty if the
        tables are equal (R22).
        """
        mine, theirs = self.context, master.context
        for name in ("topics", "groups"):
            one, other = getattr(mine, name), getattr(theirs, name)
            if one.data_version != other.data_version:
                return f"{name} in {one.data_version}, {other.data_version}"
            known, wanted = (getattr(table, f"all_{name}")() for table in (one, other))
            for key, value in wanted.items():
                if known.get(key) != value:
                    return f"{name}: {key} is {known.get(key)}, {value}"
        here = self.offsets()
        clerk = self._broker.run_of.clerk
        for where, at in master.offsets().items():
            may_go = where in clerk.set_back or where[0].endswith(DOOMED)
            if here.get(where, -1) < at and not may_go:
                return f"offset of {where} is {here.get(where)}, {at}"
        return ""


class Kept:
    """Durable state of a broker's tables."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.offsets: dict[Where, int] = {}


class Clerk(Client):
    """Changes tables at the broker that the name server calls the master, one thing at a time."""

    def __init__(self, group: "Run", name: str) -> None:
        super().__init__(group, name, "A", 1)
        self.set_back: set[Where] = set()
        """Offsets that were set back on purpose."""
        self.done: list[str] = []
        """Acknowledged changes."""
        self.safe: dict[tuple[str, int], int] = {}
        """Acknowledged ends of queues: consumers may commit up to them."""

    @property
    def is_busy(self) -> bool:
        """Whether it waits for an answer."""
        return self._busy

    def ask_of(self, address: str) -> None:
        """Send the next requests to this address."""
        self._address = address

    def _send(self) -> None:
        draw, rng = self._rng.random(), self._rng
        name = NAMES[int(rng.random() * len(NAMES))]
        if draw < 0.3:
            self.topic_of(name, 1 + int(rng.random() * 4))
        elif draw < 0.4:
            self.group_of(name)
        elif draw < 0.45:
            self.topic_of(DOOMED, 1)
        elif draw < 0.5:
            self.tell("deletes", deletion_request(DOOMED))
        elif self.safe:
            topic, queue_id = sorted(self.safe)[int(rng.random() * len(self.safe))]
            end = self.safe[topic, queue_id]
            at = int(rng.random() * end) if draw > 0.97 else end
            self.commit(name, topic, queue_id, at)
        else:
            self.group_of(name)

    def topic_of(self, name: str, queues: int) -> None:
        """Make a topic, or change it."""
        wanted = {3: "+message.type=DELAY", 4: "+message.type=FIFO"}.get(queues, "")
        self.tell(f"topic {name}", queues_request(name, queues, wanted))

    def group_of(self, name: str) -> None:
        """Make a group of consumers."""
        body = SubscriptionGroupConfig(name).to_json()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        self.tell(f"group {name}", new_request(code, None, encode_json(body)))

    def commit(self, name: str, topic: str, queue_id: int, at: int) -> None:
        """Commit an offset of a group."""
        where = (topic, name, queue_id)
        if at < self.safe.get((topic, queue_id), 0) or self.group.trouble.repeat:
            self.set_back.add(where)
        fields = {
            "consumerGroup": name,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(at),
        }
        request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, None, fields=fields)
        self.tell(f"offset {at}", request, where)

    def tell(self, what: str, request: Command, where: Where | None = None) -> None:
        """Ask for one change."""
        self._ask(self._address, request, partial(self._told, what, where))

    def _told(self, what: str, where: Where | None, response: Command | str) -> None:
        if isinstance(response, str):
            if where is not None:
                self.set_back.add(where)  # it may still arrive, after later ones
            self._address = ""
            self._wait(response)
            return
        assert response.code in CODES, f"{what} is answered with {response.code} {response.remark}"
        if where is not None and self.group.trouble.repeat:
            self.set_back.add(where)  # that began on its way: it may arrive again
        if response.code == ResponseCode.SUCCESS:
            self.done.append(what)
        self._busy = False
        self._next_ms = self.clock.now_ms + 2 * self.group.think_ms()


def config_of(broker: "GroupBroker") -> BrokerConfig:
    """Configuration of a broker, as its file would give it."""
    options, timeout_ms = broker.options, broker.run_of.plan.timeout_ms
    store = replace(broker.settings.store)
    return BrokerConfig(
        broker_name=GROUP,
        broker_cluster_name=CLUSTER,
        store=store,
        consumer_offset_update_version_step=1,
        transaction_time_out_ms=1_500,
        transaction_check_interval_ms=1_000,
        namesrv_addr=(NAMES_ADDRESS,),
        replication=ReplicationConfig(
            enable_controller_mode=True,
            controller_addr=tuple(addresses().values()),
            controller_heart_beat_timeout_ms=timeout_ms,
            broker_heartbeat_interval_ms=timeout_ms // HEARTBEATS,
            in_sync_replicas=options.in_sync_replicas,
            slave_timeout_ms=options.slave_timeout_ms,
            enable_slave_acting_master=broker.run_of.acts,
            broker_not_active_timeout_ms=DEAD_MS,
        ),
    )

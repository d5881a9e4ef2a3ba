"""Which brokers live, as far as this controller heard.

Owns the table of heartbeats. It must never be replicated nor read a clock: brokers tell every
controller, so that a new leader's table is warm, and times are arguments. Called by core.py.

A broker is dead that was silent longer than its own timeout, or whose connection closed because
its process ended (suspects.py asks). The questions:

    fresh   a heartbeat came within a part of the timeout: may be made master
    heard   a heartbeat came within the timeout: may be in the SyncStateSet
    alive   not known to be dead: a master that is this stays, no command cleans away what is

The last two differ after a change of the lead. The leader before may have granted a lease after the
last heartbeat that came here, so a broker counts as alive for one timeout from when this lead
began, whether it was heard of late or never (law: an election for silence comes after every lease).
Only a connection that just closed is no silence, and whose silence this leader itself waited for is
dead until it is heard again.

Controllers that were restored from an older copy learn from heartbeats what they lack, so these are
kept, too: the last epochs of each registered broker, dead or not, and what brokers tell that run
and are not registered, or have an id that is another's now (strangers.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from turbopump.controller.state import NAME_MAX, Group
from turbopump.controller.strangers import Strangers
from turbopump.engine.types import LONG_AGO_MS, Fitness
from turbopump.net.wire.headers.controller import RegisterBrokerToControllerRequest
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest
from turbopump.net.wire.names import kept_size

HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""What a heartbeat without one means (DefaultBrokerHeartbeatManager)."""
TIMEOUT_MIN_MS: Final = 100
TIMEOUT_MAX_MS: Final = 300_000
"""What a heartbeat may ask for: a broker that asks for longer would never be missed."""
BROKERS_MAX: Final = 50_000
"""Brokers heard of that are not registered, so that made-up names cannot fill the memory. Those
that are registered are bounded with the tables, and never refused for others."""
NAMES_MAX: Final = 16 << 20
"""Bytes of their names, 300 for each."""
CONNECTION_MAX: Final = 100
"""Of them by one connection, which has one broker: all of it is dropped at once when it closes."""
FRESH_SHARE: Final = 0.4
"""Of the timeout: with RocketMQ's settings 4 s, four heartbeats."""
TELL_SHARE: Final = 0.4
"""So long into a lead a broker is waited for that this controller never heard: four heartbeats."""
NOW_SHARE: Final = 0.2
"""With RocketMQ's settings two heartbeats."""
READ_FIRST_MS: Final = 100
"""Between two ticks: for longer this process stood still, and has to read what came meanwhile."""
STALL_MS: Final = 1_000
"""For longer heartbeats may have found no connection, too."""
CREDIT_MS: Final = 1_000
"""Until their next one is here (brokerHeartbeatInterval)."""
PRIORITY_LAST: Final = 2**31 - 1
OUTSIDE: Final = 0
MEMBER: Final = 1
REIGNS: Final = 2
"""What a broker says that it is, or was last: see BrokerHeartbeatRequest.standing."""
SETTLED_MS: Final = 10_000
"""Age of a reign from which on the lead may move to a faster disk: no lead alternates."""
NO_CONNECTION: Final = -1
"""Of a broker whose connection closed and that was not heard since."""

Key = tuple[str, str, int]
"""(cluster, broker name, id)."""
Epochs = tuple[int, int]
"""The last one of a broker's log, and of the newest SyncStateSet that it knows."""
NO_EPOCHS: Final[Epochs] = (-1, -1)
"""It reported none, or is a Java broker."""


@dataclass(slots=True)
class Heard:
    """The newest heartbeat of a broker; an epoch of -1: it reported none."""

    connection: int
    heard_ms: int
    timeout_ms: int
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    priority: int = PRIORITY_LAST
    leased: bool = False
    """Whether it said, in this life, that it reigns only under leases of its reign."""
    credited: bool = False
    """Whether it had more time than its timeout, since it was heard."""
    standing: int | None = None
    """What it was in the reign of `epoch`: REIGNS, MEMBER or OUTSIDE; None: it does not say."""
    fitness: Fitness = Fitness.FIT
    """Whether it takes messages, as it says; a Java broker says nothing."""
    reports_fast: bool = False
    """Whether it reported a measured disk that is fast enough for sends."""

    @property
    def knows(self) -> tuple[int, bool]:
        """The more, the surer it has all that was acknowledged."""
        return self.epoch, self.standing == REIGNS

    @property
    def rank(self) -> tuple[int, int, int]:
        """The least is the best master: the latest epoch, then the longest log, then who was
        configured to come first."""
        return (-self.epoch, -self.max_offset, self.priority)


class _Dead:
    """Brokers with the time at which they were found dead: at most BROKERS_MAX, and NAMES_MAX bytes
    of names. The oldest ones go first, and before any that `is_registered` those that are not."""

    def __init__(self, is_registered: Callable[[Key], bool]) -> None:
        self._is_registered = is_registered
        self._times: dict[Key, int] = {}
        self.size = 0
        """Bytes of the names."""

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._times)

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def time_of(self, key: Key) -> int:
        """In ms; LONG_AGO_MS where it is not here."""
        return self._times.get(key, LONG_AGO_MS)

    def add(self, key: Key, at_ms: int) -> None:
        """It is dead since then."""
        if key not in self._times:
            self.size += kept_size(*key[:2])
        self._times[key] = at_ms
        spared = 0
        while len(self._times) > BROKERS_MAX or self.size > NAMES_MAX:
            oldest = next(iter(self._times))
            if spared < len(self._times) and self._is_registered(oldest):
                spared += 1
                self._times[oldest] = self._times.pop(oldest)
            else:
                self.discard(oldest)

    def discard(self, key: Key) -> None:
        """It lives, or is of no interest any more."""
        if self._times.pop(key, None) is not None:
            self.size -= kept_size(*key[:2])

    def clear(self) -> None:
        """Nothing is dead."""
        self._times.clear()
        self.size = 0

    def expire(self, before_ms: int) -> None:
        """Forget those that were found earlier."""
        for key in [key for key, at_ms in self._times.items() if at_ms < before_ms]:
            self.discard(key)


class Heartbeats:
    """See the module. Times are of the monotonic clock.

    `is_registered` tells the brokers of the tables from names that are made up.
    """

    def __init__(
        self,
        timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
        is_registered: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self._is_registered = is_registered
        self._heard: dict[Key, Heard] = {}
        self._strangers: set[Key] = set()
        """Those heard of that were not registered when their newest heartbeat came."""
        self._size = 0
        """Bytes of the names of these."""
        self._keys: dict[int, set[Key]] = {}
        self._closed = _Dead(is_registered)
        self._silent = _Dead(is_registered)
        """Whose timeout is over, since this lead began."""
        self._lead_ms = LONG_AGO_MS
        self._marked: dict[Key, int] = {}
        self._ticked_ms = LONG_AGO_MS
        self._last_epochs: dict[Key, Epochs] = {}
        """What registered brokers reported last, or that their word is not taken for it."""
        self._reigns_ms: dict[str, int] = {}
        """Broker name to the time of its last election, while that is not settled."""
        self.strangers: Strangers[Heard] = Strangers(BROKERS_MAX, NAMES_MAX)
        self.judged_ms = LONG_AGO_MS
        """All that came until then is read: silence counts up to here."""

    def __len__(self) -> int:
        return len(self._heard)

    def lead(self, now_ms: int) -> None:
        """This controller leads from now on."""
        self._marked.clear()
        self._lead_ms = now_ms
        self._silent.clear()

    def on_heartbeat(
        self, header: BrokerHeartbeatRequest, connection: int, now_ms: int
    ) -> bool | None:
        """A heartbeat, with what the broker says of its log: the newest counts, so that one that
        cut its log does not keep the old length (RocketMQ: the greatest). Whether it could not be
        elected until now and can, or says another thing of its fitness than before; None if there
        are too many brokers."""
        assert header.broker_id is not None
        if max(len(header.cluster_name), len(header.broker_name)) > NAME_MAX:
            return None  # no broker has such a name
        key = (header.cluster_name, header.broker_name, header.broker_id)
        is_news = not self.fresh(key, now_ms) or self.newest(key) is None
        timeout_ms = header.heartbeat_timeout_mills or self.timeout_ms
        one = self._touched(key, connection, now_ms)
        if one is None:
            return None
        one.timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        before = one.fitness
        _note(one, header)
        if self._is_registered(key) and one.max_offset >= 0:
            set_epoch = header.sync_state_set_epoch
            told = one.epoch, -1 if set_epoch is None else set_epoch
            self._last_epochs[key] = told if one.leased else NO_EPOCHS
        return is_news or one.fitness is not before

    def on_stranger(self, header: BrokerHeartbeatRequest, now_ms: int) -> None:
        """A heartbeat of a broker that is not registered, or not under the id that it says."""
        if max(len(header.cluster_name), len(header.broker_name)) <= NAME_MAX:
            one = Heard(NO_CONNECTION, now_ms, self.timeout_ms)
            _note(one, header)
            self.strangers.add((header.cluster_name, header.broker_name), header.broker_addr, one)

    def touch(self, key: Key, connection: int, now_ms: int) -> bool:
        """A broker asked for something: a sign of life without news of its log. Whether it was dead
        until now."""
        was_dead = not self.heard(key, now_ms)
        return self._touched(key, connection, now_ms) is not None and was_dead

    def on_registered(self, key: Key, header: RegisterBrokerToControllerRequest) -> None:
        """A registration is committed, with what it says of the broker's log."""
        if header.life is not None and (header.unclean or header.damaged):
            self._marked[key] = header.life

    def is_marked(self, key: Key, life: int | None) -> bool:
        """Whether this lead committed a registration of that life which said so."""
        return life is not None and self._marked.get(key) == life

    def on_life(self, key: Key, address: str) -> None:
        """A broker registers: another program may run there than before."""
        self.strangers.discard(key[:2], address)
        if key in self._heard:
            self._heard[key].leased, self._heard[key].standing = False, None
            self._heard[key].fitness = Fitness.FIT
            self._heard[key].reports_fast = False

    def on_reign(self, broker_name: str, now_ms: int) -> None:
        """The controllers agreed on a master."""
        self._reigns_ms[broker_name] = now_ms

    def is_settled(self, broker_name: str, now_ms: int) -> bool:
        """Whether this controller saw no election of that group for SETTLED_MS."""
        return self._reigns_ms.get(broker_name, LONG_AGO_MS) + SETTLED_MS <= now_ms

    def bury(self, key: Key, now_ms: int) -> None:
        """What a broker reported is of a life that is over."""
        if key in self._heard:
            self._drop(key)
        self._closed.add(key, now_ms)

    def timeout_of(self, key: Key) -> int:
        """How long that broker may surely be silent: what it asked for, but no longer than a leader
        waits for one that it never heard."""
        one = self._heard.get(key)
        return self.timeout_ms if one is None else min(one.timeout_ms, self.timeout_ms)

    def on_closed(self, connection: int) -> list[Key]:
        """A connection is gone; whose only one it was, and whether their processes are dead has to
        be asked. A broker that came back over another one is none of them (RocketMQ keeps the first
        connection and drops it)."""
        apart = sorted(self._keys.pop(connection, ()))
        for key in apart:
            self._heard[key].connection = NO_CONNECTION
        return apart

    def is_apart(self, key: Key) -> bool:
        """Whether its only connection closed and it was not heard since."""
        return key in self._heard and self._heard[key].connection == NO_CONNECTION

    def ended(self, key: Key, now_ms: int) -> bool:
        """The process behind a connection that closed is dead; False if it was heard since."""
        if not self.is_apart(key):
            return False
        self._drop(key)
        self._closed.add(key, now_ms)
        return True

    def expire(self, now_ms: int) -> list[Key]:
        """Who is dead since the last call because it was silent for too long."""
        now_ms = self._judged(now_ms)
        dead = [
            key
            for key, one in self._heard.items()
            if max(one.heard_ms, self._lead_ms) + one.timeout_ms < now_ms
        ]
        for key in dead:
            self._drop(key)
            self._silent.add(key, now_ms)
        self._closed.expire(now_ms - self.timeout_ms)
        self.strangers.expire(now_ms - self.timeout_ms)
        for name in [name for name in self._reigns_ms if self.is_settled(name, now_ms)]:
            del self._reigns_ms[name]
        for key in [one for one in self._last_epochs if not self._is_registered(one)]:
            del self._last_epochs[key]
        return dead

    def on_tick(self, now_ms: int) -> None:
        """Time has passed. Of what came while this process stood still nothing is lost: it waits in
        its sockets, and is read before the next tick. Who had no connection then has the time of
        one heartbeat, and that once, until it is heard: who stands still again and again misses a
        broker all the same."""
        is_first = self._ticked_ms == LONG_AGO_MS
        slept_ms = 0 if is_first else now_ms - self._ticked_ms
        self.judged_ms = self._ticked_ms if slept_ms > READ_FIRST_MS else now_ms
        if slept_ms > STALL_MS:
            for one in self._heard.values():
                end_ms = max(one.heard_ms, self._lead_ms) + one.timeout_ms
                if not one.credited and end_ms < now_ms + CREDIT_MS:
                    one.heard_ms = now_ms + CREDIT_MS - one.timeout_ms
                    one.credited = True
        self._ticked_ms = now_ms

    def all_heard_now(self, now_ms: int) -> bool:
        """Whether no broker's silence is being waited for."""
        return all(
            one.heard_ms + one.timeout_ms * NOW_SHARE >= now_ms for one in self._heard.values()
        )

    def fresh(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat came within a part of the timeout, and its connection stands."""
        one = self._heard.get(key)
        if one is None or one.connection == NO_CONNECTION:
            return False
        return one.heard_ms + one.timeout_ms * FRESH_SHARE >= now_ms

    def heard(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat came within the timeout."""
        one = self._heard.get(key)
        return one is not None and one.heard_ms + one.timeout_ms >= now_ms

    def alive(self, key: Key, now_ms: int) -> bool:
        """Whether it is not known to be dead."""
        now_ms = self._judged(now_ms)
        one = self._heard.get(key)
        if one is not None:
            return max(one.heard_ms, self._lead_ms) + one.timeout_ms >= now_ms
        if key in self._silent:
            return False
        closed = self._closed.time_of(key) + self.timeout_ms >= now_ms
        return not closed and self._lead_ms + self.timeout_ms >= now_ms

    def newest(self, key: Key) -> Heard | None:
        """What it reported last, None if it is dead or reported nothing of its log."""
        one = self._heard.get(key)
        return None if one is None or one.max_offset < 0 else one

    def last_epochs(self, key: Key) -> Epochs:
        """What it reported last, alive or dead."""
        return self._last_epochs.get(key, NO_EPOCHS)

    def is_young(self, now_ms: int) -> bool:
        """Whether this lead began a moment ago."""
        return now_ms - self._lead_ms < self.timeout_ms * TELL_SHARE

    def may_tell(self, key: Key, now_ms: int) -> bool:
        """Whether it may be about to tell what is not known here: this lead is young, and this
        process never heard from it."""
        if not self.is_young(now_ms) or key in self._last_epochs:
            return False
        return self.newest(key) is None and self.alive(key, now_ms)

    def _judged(self, now_ms: int) -> int:
        return now_ms if self.judged_ms == LONG_AGO_MS else min(now_ms, self.judged_ms)

    def fitness(self, key: Key) -> Fitness:
        """Whether it takes messages, as far as it said."""
        one = self._heard.get(key)
        return Fitness.FIT if one is None else one.fitness

    def _touched(self, key: Key, connection: int, now_ms: int) -> Heard | None:
        one = self._heard.get(key)
        if self._is_registered(key):
            self._be_known(key)
        elif one is None and not self._take_stranger(key, connection):
            return None
        if one is None:
            one = self._heard[key] = Heard(connection, now_ms, self.timeout_ms)
            self._closed.discard(key)
            self._silent.discard(key)
        elif one.connection != connection:
            self._unlink(key, one.connection)
        one.connection, one.heard_ms, one.credited = connection, now_ms, False
        self._keys.setdefault(connection, set()).add(key)
        return one

    def _take_stranger(self, key: Key, connection: int) -> bool:
        """Whether there is room for one more."""
        size = self._size + kept_size(*key[:2])
        full = len(self._strangers) >= BROKERS_MAX or size > NAMES_MAX
        mine = self._keys.get(connection, set())
        if full or (len(mine) >= CONNECTION_MAX and len(mine & self._strangers) >= CONNECTION_MAX):
            return False
        self._strangers.add(key)
        self._size = size
        return True

    def _be_known(self, key: Key) -> None:
        """It is registered, or is no more heard of."""
        if key in self._strangers:
            self._strangers.discard(key)
            self._size -= kept_size(*key[:2])

    def _drop(self, key: Key) -> None:
        one = self._heard.pop(key)
        self._be_known(key)
        self._unlink(key, one.connection)

    def _unlink(self, key: Key, connection: int) -> None:
        if connection == NO_CONNECTION:
            return
        keys = self._keys[connection]
        keys.discard(key)
        if not keys:
            del self._keys[connection]


@dataclass(slots=True)
class Live:
    """elections.Liveness over the table of heartbeats, at one time."""

    heartbeats: Heartbeats
    now_ms: int

    def fresh(self, group: Group, broker_id: int) -> bool:
        """See the module."""
        return self.heartbeats.fresh(key_of(group, broker_id), self.now_ms)

    def heard(self, group: Group, broker_id: int) -> bool:
        """See the module."""
        return self.heartbeats.heard(key_of(group, broker_id), self.now_ms)

    def alive(self, group: Group, broker_id: int) -> bool:
        """See the module."""
        return self.heartbeats.alive(key_of(group, broker_id), self.now_ms)

    def newest(self, group: Group, broker_id: int) -> Heard | None:
        """What it reported last."""
        return self.heartbeats.newest(key_of(group, broker_id))

    def fitness(self, group: Group, broker_id: int) -> Fitness:
        """Whether it takes messages, as far as it said."""
        return self.heartbeats.fitness(key_of(group, broker_id))

    def reports_fast(self, group: Group, broker_id: int) -> bool:
        """Whether it reported a disk that is fast enough for sends."""
        one = self.heartbeats.newest(key_of(group, broker_id))
        return one is not None and one.reports_fast

    def is_settled(self, group: Group) -> bool:
        """Whether the group had no election for SETTLED_MS."""
        return self.heartbeats.is_settled(group.broker_name, self.now_ms)

    def last_epochs(self, group: Group, broker_id: int) -> Epochs:
        """What it reported last, alive or dead."""
        return self.heartbeats.last_epochs(key_of(group, broker_id))

    def may_tell(self, group: Group, broker_id: int) -> bool:
        """Whether it may be about to tell what is not known here."""
        return self.heartbeats.may_tell(key_of(group, broker_id), self.now_ms)

    def strangers(self, group: Group) -> list[Heard]:
        """What brokers of the group tell that run and are not registered."""
        since_ms = self.now_ms - int(self.heartbeats.timeout_ms * FRESH_SHARE)
        return self.heartbeats.strangers.of((group.cluster_name, group.broker_name), since_ms)

    def is_marked(self, group: Group, broker_id: int, life: int | None) -> bool:
        """Whether it is written down of that very life what became of its log."""
        return self.heartbeats.is_marked(key_of(group, broker_id), life)

    def is_young(self) -> bool:
        """Whether this lead began a moment ago."""
        return self.heartbeats.is_young(self.now_ms)


def key_of(group: Group, broker_id: int) -> Key:
    """Under which a broker of a group is kept."""
    return (group.cluster_name, group.broker_name, broker_id)


def _note(one: Heard, header: BrokerHeartbeatRequest) -> None:
    """What a heartbeat tells."""
    one.epoch = -1 if header.epoch is None else header.epoch
    one.max_offset = -1 if header.max_offset is None else header.max_offset
    one.confirm_offset = -1 if header.confirm_offset is None else header.confirm_offset
    priority = header.election_priority
    one.priority = PRIORITY_LAST if priority is None else priority
    one.leased, one.standing = bool(header.leased), header.standing
    one.fitness = _fitness_of(header.unfit)
    if one.fitness is Fitness.FIT and header.slow:
        one.fitness = Fitness.SLOW
    one.reports_fast = header.slow is False


def _fitness_of(text: str | None) -> Fitness:
    """A word that is not known is of a later version, and no good one."""
    try:
        return Fitness(text or "")
    except ValueError:
        return Fitness.FAILED

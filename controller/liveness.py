"""Liveness of brokers, as far as this controller received their heartbeats.

Owns the table of heartbeats. It must never be replicated nor read a clock: brokers send heartbeats
to every controller, so that a new leader's table is warm, and times are arguments.

A broker is dead if it was silent longer than its own timeout, or if its connection closed because
its process ended (death_probe.py probes that). The questions:

    fresh   a heartbeat came within a part of the timeout: may become master
    heard   a heartbeat came within the timeout: may be in the SyncStateSet
    alive   not known to be dead: such a master stays, and no command removes such a broker

The last two differ after a change of the leader. The leader before may have granted a lease after
the last heartbeat that this controller received. So a broker counts as alive for one timeout from
the start of this lead, even if it never sent a heartbeat here (an election for silence comes after
every lease). The exceptions are a connection that just closed, and a broker whose whole timeout
this leader has waited for: that broker is dead until its next heartbeat.

Controllers that were restored from an older copy learn the missing facts from heartbeats. So the
table also has the last epochs of each registered broker, dead or not, and the reports of running
brokers that are not registered, or whose id now belongs to another broker
(unregistered_brokers.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from turbopump.controller.state import NAME_MAX, Group
from turbopump.controller.unregistered_brokers import UnregisteredBrokers
from turbopump.engine.types import LONG_AGO_MS, StoreHealth
from turbopump.net.wire.headers.controller import RegisterBrokerToControllerRequest
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest
from turbopump.net.wire.names import kept_size

HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""Timeout of a broker whose heartbeat names none (DefaultBrokerHeartbeatManager)."""
TIMEOUT_MIN_MS: Final = 100
"""Least timeout that a broker's heartbeat can set; a smaller one counts as this."""
TIMEOUT_MAX_MS: Final = 300_000
"""Greatest timeout: the failure of a broker with a longer one would go unnoticed."""
BROKERS_MAX: Final = 50_000
"""Unregistered brokers in the table, at most, so that made-up names cannot fill the memory.
Registered brokers are bounded by the tables, and never refused for others."""
NAMES_MAX: Final = 16 << 20
"""Bytes of the names of unregistered brokers, at most: 300 each."""
CONNECTION_MAX: Final = 100
"""Unregistered brokers per connection, at most; a real connection has one broker. All of them are
dropped at once when it closes."""
FRESH_SHARE: Final = 0.4
"""Fraction of the timeout within which a heartbeat is fresh: with RocketMQ's settings 4 s, four
heartbeats."""
TELL_SHARE: Final = 0.4
"""Fraction of the timeout that a new leader waits for brokers without a heartbeat yet (four
heartbeats)."""
NOW_SHARE: Final = 0.2
"""Fraction of the timeout within which no broker counts as silent: with RocketMQ's settings two
heartbeats."""
READ_FIRST_MS: Final = 100
"""Gap between two ticks after which this process was suspended, and must first read its sockets."""
STALL_MS: Final = 1_000
"""Gap between two ticks after which brokers may also have failed to connect."""
CREDIT_MS: Final = 1_000
"""Time that a broker has for its next heartbeat after a gap of over STALL_MS: an interval of
heartbeats (brokerHeartbeatInterval)."""
PRIORITY_LAST: Final = 2**31 - 1
"""Election priority of a broker that reported none: the last choice."""
OUTSIDE: Final = 0
"""Role of a broker outside of the SyncStateSet; see BrokerHeartbeatRequest.standing."""
MEMBER: Final = 1
"""Role of a replica in the SyncStateSet."""
MASTER: Final = 2
"""Role of the group's master."""
SETTLED_MS: Final = 10_000
"""Minimum age of a master's term before a faster disk may get the master: the role must not
alternate."""
NO_CONNECTION: Final = -1
"""Connection of a broker whose connection closed and that sent no heartbeat since."""

Key = tuple[str, str, int]
"""(cluster name, broker name, broker id): one broker."""
Epochs = tuple[int, int]
"""(last epoch of a broker's log, epoch of the newest SyncStateSet that it knows)."""
NO_EPOCHS: Final[Epochs] = (-1, -1)
"""Epochs of a broker that reported none, or of a Java broker."""


@dataclass(slots=True)
class BrokerReport:
    """The newest heartbeat of a broker; an epoch of -1: not reported."""

    connection: int
    """Number of the connection over which it came, or NO_CONNECTION."""
    heard_ms: int
    """Monotonic time of its arrival, or of the broker's last request; later by credited time."""
    timeout_ms: int
    """Silence after which the broker is dead."""
    epoch: int = -1
    """masterEpoch of the end of the broker's log."""
    max_offset: int = -1
    """End of the broker's log in bytes; -1: not reported."""
    confirm_offset: int = -1
    """Confirmed end of the broker's log in bytes; -1: not reported."""
    priority: int = PRIORITY_LAST
    """Election priority: a lower number is preferred."""
    leased: bool = False
    """Whether the broker reported, since its registration, that it serves only under leases."""
    credited: bool = False
    """Whether the broker got extra time since its last heartbeat."""
    standing: int | None = None
    """The broker's role in `epoch`: MASTER, MEMBER or OUTSIDE; None: not reported."""
    health: StoreHealth = StoreHealth.FIT
    """The store's health as reported; a Java broker reports none and counts as fit."""
    reports_fast: bool = False
    """Whether the broker reported a measured disk that is fast enough for sends."""

    @property
    def data_rank(self) -> tuple[int, bool]:
        """Sort key (epoch, whether it is the master of that epoch): a broker with a greater key
        more surely has all acknowledged messages."""
        return self.epoch, self.standing == MASTER

    @property
    def election_rank(self) -> tuple[int, int, int]:
        """Sort key (-epoch, -log end, priority): the broker with the least key is the best
        master."""
        return (-self.epoch, -self.max_offset, self.priority)


class _Dead:
    """Dead brokers with their times of death: at most BROKERS_MAX, and NAMES_MAX bytes of names.

    When full, the oldest unregistered broker is dropped first, then the oldest registered one.
    """

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
        """Return the time of death in ms; LONG_AGO_MS for a broker that is not here."""
        return self._times.get(key, LONG_AGO_MS)

    def add(self, key: Key, at_ms: int) -> None:
        """Record the death of a broker."""
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
        """Remove a broker that is alive or no longer relevant."""
        if self._times.pop(key, None) is not None:
            self.size -= kept_size(*key[:2])

    def clear(self) -> None:
        """Remove all brokers."""
        self._times.clear()
        self.size = 0

    def remove_older(self, before_ms: int) -> None:
        """Remove brokers that died before `before_ms`."""
        for key in [key for key, at_ms in self._times.items() if at_ms < before_ms]:
            self.discard(key)


class Heartbeats:
    """The table of heartbeats; see the module. Times are of the monotonic clock.

    `timeout_ms` holds for brokers that report none, and for a new leader's wait. `is_registered`
    distinguishes the brokers of the tables from made-up names.
    """

    def __init__(
        self,
        timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
        is_registered: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self._is_registered = is_registered
        self._heard: dict[Key, BrokerReport] = {}
        self._strangers: set[Key] = set()
        """Brokers that were not registered at their newest heartbeat."""
        self._size = 0
        """Bytes of the names of these."""
        self._keys: dict[int, set[Key]] = {}
        self._closed = _Dead(is_registered)
        self._silent = _Dead(is_registered)
        """Brokers whose timeout expired during this lead."""
        self._lead_ms = LONG_AGO_MS
        self._marked: dict[Key, int] = {}
        self._ticked_ms = LONG_AGO_MS
        self._last_epochs: dict[Key, Epochs] = {}
        """Last reported epochs of registered brokers; NO_EPOCHS if a report is not reliable."""
        self._term_begins_ms: dict[str, int] = {}
        """Time of a group's last election, by broker name, until SETTLED_MS have passed."""
        self.unregistered: UnregisteredBrokers[BrokerReport] = UnregisteredBrokers(
            BROKERS_MAX, NAMES_MAX
        )
        self.judged_ms = LONG_AGO_MS
        """Silence is measured up to this time: all data that arrived before it has been read."""

    def __len__(self) -> int:
        return len(self._heard)

    def begin_lead(self, now_ms: int) -> None:
        """Begin a lead at `now_ms`: marks (`is_marked`) and deaths by silence of earlier leads do
        not count, and each broker's timeout runs from now at the earliest."""
        self._marked.clear()
        self._lead_ms = now_ms
        self._silent.clear()

    def on_heartbeat(
        self, header: BrokerHeartbeatRequest, connection: int, now_ms: int
    ) -> bool | None:
        """Record a heartbeat; return whether it changes an election, or None if the table is full.

        The newest report counts, so a broker that truncated its log does not keep the old length
        (RocketMQ: the greatest counts). It changes an election if the broker had no recent
        heartbeat, had reported no log before, or if its health changed. The header must have a
        broker id.
        """
        assert header.broker_id is not None
        if max(len(header.cluster_name), len(header.broker_name)) > NAME_MAX:
            return None  # no broker has such a name
        key = (header.cluster_name, header.broker_name, header.broker_id)
        is_news = not self.has_recent_heartbeat(key, now_ms) or self.newest_report(key) is None
        timeout_ms = header.heartbeat_timeout_mills or self.timeout_ms
        one = self._record_sign_of_life(key, connection, now_ms)
        if one is None:
            return None
        one.timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        before = one.health
        _copy_report(one, header)
        if self._is_registered(key) and one.max_offset >= 0:
            set_epoch = header.sync_state_set_epoch
            epochs = one.epoch, -1 if set_epoch is None else set_epoch
            self._last_epochs[key] = epochs if one.leased else NO_EPOCHS
        return is_news or one.health is not before

    def on_unregistered(self, header: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Record a heartbeat of a broker that is not registered, or not under the id it sends, in
        `unregistered`; a name of over NAME_MAX characters is ignored."""
        if max(len(header.cluster_name), len(header.broker_name)) <= NAME_MAX:
            one = BrokerReport(NO_CONNECTION, now_ms, self.timeout_ms)
            _copy_report(one, header)
            self.unregistered.keep_report(
                (header.cluster_name, header.broker_name), header.broker_addr, one
            )

    def record_request(self, key: Key, connection: int, now_ms: int) -> bool:
        """Record a request of a broker as a sign of life without a report on its log.

        Returns whether the broker was silent for longer than its timeout before; False, without
        effect, if the table is full.
        """
        was_dead = not self.is_active(key, now_ms)
        return self._record_sign_of_life(key, connection, now_ms) is not None and was_dead

    def on_registered(self, key: Key, header: RegisterBrokerToControllerRequest) -> None:
        """Record a committed registration: a damaged or incomplete log marks its `life`; see
        `is_marked`."""
        if header.life is not None and (header.unclean or header.damaged):
            self._marked[key] = header.life

    def is_marked(self, key: Key, life: int | None) -> bool:
        """Whether this lead committed a registration of that life (the number of a broker's
        process) with a damaged or incomplete log."""
        return life is not None and self._marked.get(key) == life

    def on_life(self, key: Key, address: str) -> None:
        """Handle the start of a registration: forget the broker's reported role, health, disk speed
        and use of leases, because another version of the broker may run at `address` now."""
        self.unregistered.discard(key[:2], address)
        if key in self._heard:
            self._heard[key].leased, self._heard[key].standing = False, None
            self._heard[key].health = StoreHealth.FIT
            self._heard[key].reports_fast = False

    def on_elected(self, broker_name: str, now_ms: int) -> None:
        """Record that a master of this group was elected at `now_ms`; see `is_settled`."""
        self._term_begins_ms[broker_name] = now_ms

    def is_settled(self, broker_name: str, now_ms: int) -> bool:
        """Whether this controller saw no election of the group in the last SETTLED_MS."""
        return self._term_begins_ms.get(broker_name, LONG_AGO_MS) + SETTLED_MS <= now_ms

    def discard_reports(self, key: Key, now_ms: int) -> None:
        """Discard a broker's reports, which belong to its previous process; the broker counts as
        dead since `now_ms` until its next heartbeat or request."""
        if key in self._heard:
            self._remove_broker(key)
        self._closed.add(key, now_ms)

    def timeout_of(self, key: Key) -> int:
        """Return the time in ms for which silence alone does not make the broker dead on any
        controller: its own timeout, at most `timeout_ms`. Leases are a fraction of it."""
        one = self._heard.get(key)
        return self.timeout_ms if one is None else min(one.timeout_ms, self.timeout_ms)

    def on_closed(self, connection: int) -> list[Key]:
        """Handle a closed connection; return the keys, sorted, of the brokers that are without a
        connection now.

        Their processes may be dead, which a probe must find out; `record_death` records that. A
        broker that has sent a heartbeat over another connection since is not returned (RocketMQ
        keeps the first connection, and drops such a broker).
        """
        apart = sorted(self._keys.pop(connection, ()))
        for key in apart:
            self._heard[key].connection = NO_CONNECTION
        return apart

    def is_disconnected(self, key: Key) -> bool:
        """Whether the broker's only connection closed, without a heartbeat since."""
        return key in self._heard and self._heard[key].connection == NO_CONNECTION

    def record_death(self, key: Key, now_ms: int) -> bool:
        """Record the death of a broker's process; False, without effect, if the broker is connected
        again or not in the table."""
        if not self.is_disconnected(key):
            return False
        self._remove_broker(key)
        self._closed.add(key, now_ms)
        return True

    def remove_expired(self, now_ms: int) -> list[Key]:
        """Remove the brokers whose timeout has expired, and return their keys; drop old facts, too.

        Silence is measured up to `judged_ms` and from the start of this lead at the earliest.
        """
        now_ms = self._judged_time(now_ms)
        dead = [
            key
            for key, one in self._heard.items()
            if max(one.heard_ms, self._lead_ms) + one.timeout_ms < now_ms
        ]
        for key in dead:
            self._remove_broker(key)
            self._silent.add(key, now_ms)
        self._closed.remove_older(now_ms - self.timeout_ms)
        self.unregistered.remove_older(now_ms - self.timeout_ms)
        for name in [name for name in self._term_begins_ms if self.is_settled(name, now_ms)]:
            del self._term_begins_ms[name]
        for key in [one for one in self._last_epochs if not self._is_registered(one)]:
            del self._last_epochs[key]
        return dead

    def on_tick(self, now_ms: int) -> None:
        """Advance the time, and give extra time after a suspension of this process.

        Data that arrived during the suspension is not lost: it waits in the sockets, and is read
        before the next tick. A broker that could not connect meanwhile gets time for one
        heartbeat, and only once until its next heartbeat: repeated suspensions must not keep a dead
        broker alive.
        """
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

    def all_have_recent_heartbeat(self, now_ms: int) -> bool:
        """Whether each known broker sent a heartbeat within NOW_SHARE of its timeout."""
        return all(
            one.heard_ms + one.timeout_ms * NOW_SHARE >= now_ms for one in self._heard.values()
        )

    def has_recent_heartbeat(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat or request of the broker came within FRESH_SHARE of its timeout, over
        a connection that is still open."""
        one = self._heard.get(key)
        if one is None or one.connection == NO_CONNECTION:
            return False
        return one.heard_ms + one.timeout_ms * FRESH_SHARE >= now_ms

    def is_active(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat or request of the broker came within its timeout."""
        one = self._heard.get(key)
        return one is not None and one.heard_ms + one.timeout_ms >= now_ms

    def may_be_alive(self, key: Key, now_ms: int) -> bool:
        """Whether the broker is not known to be dead. Within the timeout of a new lead a broker
        without a heartbeat counts as alive, unless it was found dead."""
        now_ms = self._judged_time(now_ms)
        one = self._heard.get(key)
        if one is not None:
            return max(one.heard_ms, self._lead_ms) + one.timeout_ms >= now_ms
        if key in self._silent:
            return False
        closed = self._closed.time_of(key) + self.timeout_ms >= now_ms
        return not closed and self._lead_ms + self.timeout_ms >= now_ms

    def newest_report(self, key: Key) -> BrokerReport | None:
        """Return the newest report of a broker, a live object; None if it is dead or reported no
        log."""
        one = self._heard.get(key)
        return None if one is None or one.max_offset < 0 else one

    def last_epochs(self, key: Key) -> Epochs:
        """Return the epochs that a registered broker reported last, alive or dead; NO_EPOCHS if it
        reported none."""
        return self._last_epochs.get(key, NO_EPOCHS)

    def is_young(self, now_ms: int) -> bool:
        """Whether this controller became leader less than TELL_SHARE of the timeout ago."""
        return now_ms - self._lead_ms < self.timeout_ms * TELL_SHARE

    def may_tell(self, key: Key, now_ms: int) -> bool:
        """Whether a broker may be about to report facts that are unknown here.

        That is so if this lead is young and this process never received a heartbeat of the broker.
        """
        if not self.is_young(now_ms) or key in self._last_epochs:
            return False
        return self.newest_report(key) is None and self.may_be_alive(key, now_ms)

    def _judged_time(self, now_ms: int) -> int:
        """The time in ms up to which silence counts: `now_ms`, or earlier after a
        suspension of this process."""
        return now_ms if self.judged_ms == LONG_AGO_MS else min(now_ms, self.judged_ms)

    def reported_health(self, key: Key) -> StoreHealth:
        """Return the health of the broker's store as reported; FIT if unknown or dead."""
        one = self._heard.get(key)
        return StoreHealth.FIT if one is None else one.health

    def _record_sign_of_life(self, key: Key, connection: int, now_ms: int) -> BrokerReport | None:
        """Record a sign of life of a broker over a connection; returns its report, which is added
        if it is missing, or None if the table is full."""
        one = self._heard.get(key)
        if self._is_registered(key):
            self._uncount_unregistered(key)
        elif one is None and not self._add_unregistered(key, connection):
            return None
        if one is None:
            one = self._heard[key] = BrokerReport(connection, now_ms, self.timeout_ms)
            self._closed.discard(key)
            self._silent.discard(key)
        elif one.connection != connection:
            self._forget_connection(key, one.connection)
        one.connection, one.heard_ms, one.credited = connection, now_ms, False
        self._keys.setdefault(connection, set()).add(key)
        return one

    def _add_unregistered(self, key: Key, connection: int) -> bool:
        """Add an unregistered broker if the bounds allow; return whether they do."""
        size = self._size + kept_size(*key[:2])
        full = len(self._strangers) >= BROKERS_MAX or size > NAMES_MAX
        mine = self._keys.get(connection, set())
        if full or (len(mine) >= CONNECTION_MAX and len(mine & self._strangers) >= CONNECTION_MAX):
            return False
        self._strangers.add(key)
        self._size = size
        return True

    def _uncount_unregistered(self, key: Key) -> None:
        """Stop counting a broker as unregistered: it is registered, or was dropped."""
        if key in self._strangers:
            self._strangers.discard(key)
            self._size -= kept_size(*key[:2])

    def _remove_broker(self, key: Key) -> None:
        """Remove a broker from the table of heartbeats."""
        one = self._heard.pop(key)
        self._uncount_unregistered(key)
        self._forget_connection(key, one.connection)

    def _forget_connection(self, key: Key, connection: int) -> None:
        """Forget that the broker used this connection."""
        if connection == NO_CONNECTION:
            return
        keys = self._keys[connection]
        keys.discard(key)
        if not keys:
            del self._keys[connection]


@dataclass(slots=True)
class LivenessAt:
    """The table of heartbeats, read at the monotonic time `now_ms`, as elections.Liveness.

    It reads the live table, so later heartbeats show.
    """

    heartbeats: Heartbeats
    now_ms: int

    def has_recent_heartbeat(self, group: Group, broker_id: int) -> bool:
        """Whether a heartbeat came within FRESH_SHARE of the broker's timeout, over a connection
        that is still open."""
        return self.heartbeats.has_recent_heartbeat(key_of(group, broker_id), self.now_ms)

    def is_active(self, group: Group, broker_id: int) -> bool:
        """Whether a heartbeat came within the broker's timeout."""
        return self.heartbeats.is_active(key_of(group, broker_id), self.now_ms)

    def may_be_alive(self, group: Group, broker_id: int) -> bool:
        """Whether the broker is not known to be dead; see the module."""
        return self.heartbeats.may_be_alive(key_of(group, broker_id), self.now_ms)

    def newest_report(self, group: Group, broker_id: int) -> BrokerReport | None:
        """Return the newest report of a broker; None if it is dead or reported no log."""
        return self.heartbeats.newest_report(key_of(group, broker_id))

    def reported_health(self, group: Group, broker_id: int) -> StoreHealth:
        """Return the health of the broker's store as reported; FIT if unknown or dead."""
        return self.heartbeats.reported_health(key_of(group, broker_id))

    def reports_fast(self, group: Group, broker_id: int) -> bool:
        """Whether the broker reported a measured disk that is fast enough for sends."""
        one = self.heartbeats.newest_report(key_of(group, broker_id))
        return one is not None and one.reports_fast

    def is_settled(self, group: Group) -> bool:
        """Whether this controller saw no election of the group in the last SETTLED_MS."""
        return self.heartbeats.is_settled(group.broker_name, self.now_ms)

    def last_epochs(self, group: Group, broker_id: int) -> Epochs:
        """Return the epochs that a broker reported last, alive or dead; NO_EPOCHS without any."""
        return self.heartbeats.last_epochs(key_of(group, broker_id))

    def may_tell(self, group: Group, broker_id: int) -> bool:
        """Whether this lead is young and the broker, not known to be dead, never reported here."""
        return self.heartbeats.may_tell(key_of(group, broker_id), self.now_ms)

    def unregistered_reports(self, group: Group) -> list[BrokerReport]:
        """Return the reports of the group's unregistered brokers of the last FRESH_SHARE of the
        timeout, unsorted."""
        since_ms = self.now_ms - int(self.heartbeats.timeout_ms * FRESH_SHARE)
        return self.heartbeats.unregistered.reports_of(
            (group.cluster_name, group.broker_name), since_ms
        )

    def is_marked(self, group: Group, broker_id: int, life: int | None) -> bool:
        """Whether this lead committed that the broker's log is bad in that life (process)."""
        return self.heartbeats.is_marked(key_of(group, broker_id), life)

    def is_young(self) -> bool:
        """Whether this controller became leader less than TELL_SHARE of the timeout ago."""
        return self.heartbeats.is_young(self.now_ms)


def key_of(group: Group, broker_id: int) -> Key:
    """Return the key of a group's broker in the table of heartbeats."""
    return (group.cluster_name, group.broker_name, broker_id)


def _copy_report(one: BrokerReport, header: BrokerHeartbeatRequest) -> None:
    """Copy the reported log, health and timeout of a heartbeat into `one`."""
    one.epoch = -1 if header.epoch is None else header.epoch
    one.max_offset = -1 if header.max_offset is None else header.max_offset
    one.confirm_offset = -1 if header.confirm_offset is None else header.confirm_offset
    priority = header.election_priority
    one.priority = PRIORITY_LAST if priority is None else priority
    one.leased, one.standing = bool(header.leased), header.standing
    one.health = _health_of(header.unfit)
    if one.health is StoreHealth.FIT and header.slow:
        one.health = StoreHealth.SLOW
    one.reports_fast = header.slow is False


def _health_of(text: str | None) -> StoreHealth:
    """Parse a store's health; an unknown text is from a later version, and counts as a failure."""
    try:
        return StoreHealth(text or "")
    except ValueError:
        return StoreHealth.FAILED

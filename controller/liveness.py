"""Which brokers live, as far as this controller heard.

Owns the table of heartbeats. It must never be replicated nor read a clock: brokers tell every
controller, so that a new leader's table is warm, and times are arguments. Called by core.py.

Dead is who was silent for longer than its own timeout, or whose connection closed. The questions:

    fresh   a heartbeat came within a part of the timeout: may be made master
    heard   a heartbeat came within the timeout: may be in the SyncStateSet
    alive   not known to be dead: a master that is this stays, nobody may clean away who is

The last two differ after a change of the lead. The leader before may have granted a lease after the
last heartbeat that came here, so a broker counts as alive for one timeout from when this lead
began, whether it was heard of late or never (law: an election for silence comes after every lease).
Only a connection that just closed is no silence, and whose silence this leader itself waited for is
dead until it is heard again.
"""

from dataclasses import dataclass
from typing import Final

from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""What a heartbeat without one means (DefaultBrokerHeartbeatManager)."""
TIMEOUT_MIN_MS: Final = 100
TIMEOUT_MAX_MS: Final = 300_000
"""What a heartbeat may ask for: a broker that asks for longer would never be missed."""
BROKERS_MAX: Final = 50_000
"""Brokers heard of, so that made-up names cannot fill the memory."""
FRESH_SHARE: Final = 0.4
"""Of the timeout: with RocketMQ's settings 4 s, four heartbeats."""
STALL_MS: Final = 1_000
"""Between two ticks: for longer this process stood still, and could hear nobody."""
PRIORITY_LAST: Final = 2**31 - 1

Key = tuple[str, str, int]
"""(cluster, broker name, id)."""


@dataclass(slots=True)
class Heard:
    """The newest heartbeat of a broker; an epoch of -1: it told none."""

    connection: int
    heard_ms: int
    timeout_ms: int
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    priority: int = PRIORITY_LAST
    leased: bool = False
    """Whether it said, in this life, that it reigns only under leases of its reign."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """The least is the best master: the latest epoch, then the longest log, then who was
        configured to come first."""
        return (-self.epoch, -self.max_offset, self.priority)


class Heartbeats:
    """See the module. Times are of a clock that nobody sets."""

    def __init__(self, timeout_ms: int = HEARTBEAT_TIMEOUT_MS) -> None:
        self.timeout_ms = timeout_ms
        self._heard: dict[Key, Heard] = {}
        self._keys: dict[int, set[Key]] = {}
        self._closed: dict[Key, int] = {}
        self._silent: dict[Key, None] = {}
        """Whose timeout is over, since this lead began."""
        self._lead_ms = LONG_AGO_MS
        self._ticked_ms = LONG_AGO_MS

    def __len__(self) -> int:
        return len(self._heard)

    def lead(self, now_ms: int) -> None:
        """This controller leads from now on."""
        self._lead_ms = now_ms
        self._silent.clear()

    def on_heartbeat(
        self, header: BrokerHeartbeatRequest, connection: int, now_ms: int
    ) -> bool | None:
        """A sign of life with what the broker tells of its log: the newest counts, so that who cut
        its log does not keep the old length (RocketMQ: the greatest). Whether it could not be
        elected until now and can; None if there are too many brokers."""
        assert header.broker_id is not None
        key = (header.cluster_name, header.broker_name, header.broker_id)
        is_news = not self.fresh(key, now_ms) or self.newest(key) is None
        timeout_ms = header.heartbeat_timeout_mills or self.timeout_ms
        one = self._touched(key, connection, now_ms)
        if one is None:
            return None
        one.timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        one.epoch = -1 if header.epoch is None else header.epoch
        one.max_offset = -1 if header.max_offset is None else header.max_offset
        one.confirm_offset = -1 if header.confirm_offset is None else header.confirm_offset
        priority = header.election_priority
        one.priority = PRIORITY_LAST if priority is None else priority
        one.leased = bool(header.leased)
        return is_news

    def touch(self, key: Key, connection: int, now_ms: int) -> bool:
        """A broker asked for something: a sign of life without news of its log. Whether it was dead
        until now."""
        was_dead = not self.heard(key, now_ms)
        return self._touched(key, connection, now_ms) is not None and was_dead

    def on_life(self, key: Key) -> None:
        """A broker registers: another program may run there than before."""
        if key in self._heard:
            self._heard[key].leased = False

    def bury(self, key: Key, now_ms: int) -> None:
        """What a broker told is of a life that is over."""
        if key in self._heard:
            self._drop(key)
        self._close(key, now_ms)

    def timeout_of(self, key: Key) -> int:
        """How long that broker may surely be silent: what it asked for, but no longer than a leader
        waits for one whom it never heard."""
        one = self._heard.get(key)
        return self.timeout_ms if one is None else min(one.timeout_ms, self.timeout_ms)

    def on_closed(self, connection: int, now_ms: int) -> list[Key]:
        """A connection is gone; who is dead by that. A broker that came back over another one is
        not (RocketMQ keeps the first connection and drops it)."""
        dead = sorted(self._keys.pop(connection, ()))
        for key in dead:
            del self._heard[key]
            self._close(key, now_ms)
        return dead

    def expire(self, now_ms: int) -> list[Key]:
        """Who is dead since the last call because it was silent for too long."""
        dead = [
            key
            for key, one in self._heard.items()
            if max(one.heard_ms, self._lead_ms) + one.timeout_ms < now_ms
        ]
        for key in dead:
            self._drop(key)
            self._silent[key] = None
        while len(self._silent) > BROKERS_MAX:
            del self._silent[next(iter(self._silent))]
        for key, at_ms in list(self._closed.items()):
            if at_ms + self.timeout_ms < now_ms:
                del self._closed[key]
        return dead

    def on_tick(self, now_ms: int) -> None:
        """Time has passed. What this process itself slept is nobody's silence: heartbeats that came
        meanwhile wait in its sockets, and no master must be missed for that."""
        slept_ms = now_ms - self._ticked_ms
        if self._ticked_ms != LONG_AGO_MS and slept_ms > STALL_MS:
            for one in self._heard.values():
                one.heard_ms = min(one.heard_ms + slept_ms, now_ms)
        self._ticked_ms = now_ms

    def fresh(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat came within a part of the timeout."""
        one = self._heard.get(key)
        return one is not None and one.heard_ms + one.timeout_ms * FRESH_SHARE >= now_ms

    def heard(self, key: Key, now_ms: int) -> bool:
        """Whether a heartbeat came within the timeout."""
        one = self._heard.get(key)
        return one is not None and one.heard_ms + one.timeout_ms >= now_ms

    def alive(self, key: Key, now_ms: int) -> bool:
        """Whether it is not known to be dead."""
        one = self._heard.get(key)
        if one is not None:
            return max(one.heard_ms, self._lead_ms) + one.timeout_ms >= now_ms
        if key in self._silent:
            return False
        closed = self._closed.get(key, LONG_AGO_MS) + self.timeout_ms >= now_ms
        return not closed and self._lead_ms + self.timeout_ms >= now_ms

    def newest(self, key: Key) -> Heard | None:
        """What it told last, None if it is dead or told nothing of its log."""
        one = self._heard.get(key)
        return None if one is None or one.max_offset < 0 else one

    def _touched(self, key: Key, connection: int, now_ms: int) -> Heard | None:
        one = self._heard.get(key)
        if one is None:
            if len(self._heard) >= BROKERS_MAX:
                return None
            one = self._heard[key] = Heard(connection, now_ms, self.timeout_ms)
            self._closed.pop(key, None)
            self._silent.pop(key, None)
        elif one.connection != connection:
            self._unlink(key, one.connection)
        one.connection, one.heard_ms = connection, now_ms
        self._keys.setdefault(connection, set()).add(key)
        return one

    def _close(self, key: Key, now_ms: int) -> None:
        self._closed[key] = now_ms
        if len(self._closed) > BROKERS_MAX:
            del self._closed[next(iter(self._closed))]

    def _drop(self, key: Key) -> None:
        one = self._heard.pop(key)
        self._unlink(key, one.connection)

    def _unlink(self, key: Key, connection: int) -> None:
        keys = self._keys[connection]
        keys.discard(key)
        if not keys:
            del self._keys[connection]

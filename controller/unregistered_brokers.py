"""Running brokers that are not registered, because the controllers lost their data.

Owns the reports in their heartbeats: which brokers of a group are about to come back, and their
logs. It must never be replicated nor read a clock. Every controller has one, also a follower.

A broker is known here by its address: its former id may belong to another broker by now. Made-up
names cannot fill the memory: brokers over the bounds are not added, and silent ones are dropped.

Tests: tests/unit/controller/test_liveness.py
"""

from typing import Generic, Protocol, TypeVar

from turbopump.net.wire.names import kept_size


class Timed(Protocol):
    """A report of a broker with its time of arrival."""

    heard_ms: int
    """Monotonic time of its arrival."""


T = TypeVar("T", bound=Timed)
Name = tuple[str, str]
"""(cluster name, broker name): a broker group."""


class UnregisteredBrokers(Generic[T]):
    """The newest report of each unregistered broker: at most `count_max` brokers, whose names and
    addresses have at most `size_max` bytes. Times are of the monotonic clock."""

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max, self._size_max = count_max, size_max
        self._groups: dict[Name, dict[str, T]] = {}
        self._count = self._size = 0

    def __len__(self) -> int:
        return self._count

    def keep_report(self, name: Name, address: str, heard: T) -> None:
        """Keep a report as the newest of the unregistered broker of this group at `address`.

        Without effect if the broker is new and a bound would be exceeded.
        """
        if address in self._groups.get(name, ()):
            self._groups[name][address] = heard
            return
        size = kept_size(*name, address)
        if self._count < self._count_max and self._size + size <= self._size_max:
            self._groups.setdefault(name, {})[address] = heard
            self._count, self._size = self._count + 1, self._size + size

    def discard(self, name: Name, address: str) -> None:
        """Remove the report of the broker at `address`, if there is one."""
        group = self._groups.get(name, {})
        if group.pop(address, None) is not None:
            self._count, self._size = self._count - 1, self._size - kept_size(*name, address)
            if not group:
                del self._groups[name]

    def reports_of(self, name: Name, since_ms: int) -> list[T]:
        """Return the reports of a group's brokers that arrived at or after `since_ms`, unsorted."""
        return [one for one in self._groups.get(name, {}).values() if one.heard_ms >= since_ms]

    def remove_older(self, before_ms: int) -> None:
        """Remove reports that arrived before `before_ms`."""
        old = [
            (name, address)
            for name, group in self._groups.items()
            for address, one in group.items()
            if one.heard_ms < before_ms
        ]
        for name, address in old:
            self.discard(name, address)

"""The master of a group fails under load, again and again: outage times, counts and losses.

Owns the order of a round: all are in sync, the master is killed (or stopped with SIGSTOP), the
first sends succeed, it starts again (or continues), all are in sync. It judges nothing.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from interop.support.controlled import Controlled
from interop.support.senders import SUCCESS, Found, Ledger, connected, now_ms, read_all, send

SETTLED_S = 5.0
"""Seconds until a new topic is on the replicas: they ask for their master's tables every 3 s."""
UNDER_LOAD_S = 1.0
"""Seconds under load between all in sync and the next kill."""


@dataclass
class KillTimes:
    """The results of a series of kills."""

    kills: int = 0
    first_s: dict[str, list[float]] = field(default_factory=dict)
    """Seconds by topic: from each kill to the first acknowledged send that began after it."""
    whole_s: list[float] = field(default_factory=list)
    """Seconds from the start of the killed broker, or its continuation, to all in the
    SyncStateSet."""
    found: dict[str, Found] = field(default_factory=dict)
    """Verdicts by topic, at the end."""


@dataclass(frozen=True)
class Limits:
    """Limits in seconds of the waits in a round."""

    first_s: float
    whole_s: float


def kill_masters(
    group: Controlled,
    ledgers: Sequence[Ledger],
    kills: int,
    limits: Limits,
    seen: KillTimes,
    say: Callable[[str], None],
    *,
    pause: bool = False,
) -> None:
    """Play `count` rounds. Raises NotReadyError if a round exceeds its limits."""
    for number in range(1, kills + 1):
        time.sleep(UNDER_LOAD_S)
        group.wait_whole(limits.whole_s)
        master = group.master
        assert master is not None and master.process is not None
        begun = now_ms()
        master.process.child.send_signal(signal.SIGSTOP) if pause else master.kill()
        dead = now_ms()
        seen.kills += 1
        for ledger in ledgers:
            ledger.refresh()
            ledger.watch(dead)
        group.until("sends get through again", lambda: _all_first(ledgers), limits.first_s)
        for ledger in ledgers:
            assert ledger.first_ms is not None
            seen.first_s.setdefault(ledger.topic, []).append((ledger.first_ms - begun) / 1000)
        start = time.monotonic()
        master.process.child.send_signal(signal.SIGCONT) if pause else master.start()
        group.wait_whole(limits.whole_s)
        seen.whole_s.append(time.monotonic() - start)
        each = ", ".join(f"{topic} {row[-1]:.3f} s" for topic, row in seen.first_s.items())
        say(
            f"{number} of {kills}, {master.name}: first success {each};"
            f" all in sync {seen.whole_s[-1]:.1f} s after its return"
        )


def make_topic(group: Controlled, topic: str) -> None:
    """Create the topic with a first message, as clients do."""

    def made() -> bool:
        master = group.master
        if master is None:
            return False
        with connected(master.address) as connection:
            return send(connection, topic, 0, -1).code == SUCCESS

    group.until("a topic", made)


def _all_first(ledgers: Sequence[Ledger]) -> bool:
    for ledger in ledgers:
        ledger.refresh()
    return all(ledger.first_ms is not None for ledger in ledgers)


def judge(
    group: Controlled, ledgers: Sequence[Ledger], seen: KillTimes, *, is_whole: bool = True
) -> None:
    """After the last send: wait until all logs have the same end, and read the master from the
    beginning. If the group never becomes whole, only the master's messages are read."""
    if is_whole:
        group.wait_whole()
        group.wait_alike()
    for ledger in ledgers:
        there: dict[tuple[int, int], int] = {}

        def read(ledger: Ledger = ledger, there: dict[tuple[int, int], int] = there) -> bool:
            master = group.master
            if master is None:
                return False
            there.clear()
            there.update(read_all(master.address, ledger.topic))
            return True

        group.until(f"{ledger.topic} is read", read)
        seen.found[ledger.topic] = ledger.compare(there)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that the share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Sequence[float]) -> str:
    """Return p50, p99 and max in seconds."""
    if not values:
        return "-"
    return " / ".join(
        f"{value:.2f}" for value in (percentile(values, 0.5), percentile(values, 0.99), max(values))
    )

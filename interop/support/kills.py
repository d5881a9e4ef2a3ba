"""The master of a group fails under load, again and again: how long, how much, what is lost.

Owns the order of a round: all are in sync, the master is killed (or stands still: SIGSTOP), the
first sends get through, it starts again (or goes on), all are in sync. It judges nothing. Called by
failover.py and bench/failover.py.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from interop.support.controlled import Controlled
from interop.support.senders import SUCCESS, Found, Ledger, connected, now_ms, read_all, send

SETTLED_S = 5.0
"""A new topic is on the replicas: they ask for their master's tables every 3 s."""
UNDER_LOAD_S = 1.0
"""Between all in sync and the next kill, under load."""


@dataclass
class KillTimes:
    """What a row of kills came to."""

    kills: int = 0
    first_s: dict[str, list[float]] = field(default_factory=dict)
    """By topic: from each kill to the first acknowledged send that began after it."""
    whole_s: list[float] = field(default_factory=list)
    """From the start of the killed broker, or its going on, to all in the SyncStateSet."""
    found: dict[str, Found] = field(default_factory=dict)
    """By topic, at the end."""


@dataclass(frozen=True)
class Limits:
    """How long a round is waited for."""

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
    """So many rounds. Raises NotReadyError where one takes longer than its limits."""
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
    """By a first message, as clients do."""

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
    """After the last send: all logs end alike, and the master is read from the beginning. Of a
    group that does not become whole there is only what its master has."""
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
    """The least value that so many of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Sequence[float]) -> str:
    """p50, p99 and max in seconds."""
    if not values:
        return "-"
    return " / ".join(
        f"{value:.2f}" for value in (percentile(values, 0.5), percentile(values, 0.99), max(values))
    )

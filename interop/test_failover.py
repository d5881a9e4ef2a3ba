"""The unmodified Java and Go clients send while the master is killed: nothing is lost.

A few kills; `python -m interop.support.failover --kills 50` has more of them, and prints the times.
"""

from pathlib import Path

import pytest

from interop.support.failover import through_kills
from interop.support.groups import Kind
from interop.support.kills import spread

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
KILLS = 3
POLL_MS = 1000
FIRST_S, WHOLE_S = 15.0, 40.0
"""Limits for a busy machine; bench/failover.py prints the real times."""


def test_clients_send_through_kills(kind: Kind, built: None, work: Path) -> None:
    """Java asks for the route each second and paces the kills; Go asks every 30 s."""
    if kind.name != "turbopump":
        pytest.skip("RocketMQ loses messages: python -m interop.support.failover --target rocketmq")
    seen = through_kills(
        kind, ["java", "go"], KILLS, POLL_MS, work / "failover", paced_by=["java"], say=print
    )
    for topic, found in seen.found.items():
        assert found.acked > 0, topic
        assert (found.lost, found.moved, found.twice) == (0, 0, 0), (topic, found)
    times = seen.first_s["java-kills"]
    assert len(times) == KILLS and max(times) < FIRST_S, spread(times)
    assert max(seen.whole_s) < WHOLE_S, spread(seen.whole_s)

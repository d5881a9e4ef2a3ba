"""No request of any peer holds the loop for long: a walk over all codes of all kinds of nodes.

The longest part of each request is measured in processor time of the thread, the best of three
attempts, so that other work of the machine does not count. Two threads of one core share its
units, so that the same work costs more processor time beside other work: an attempt over the limit
is divided by the pace of a fixed loop right after it. `python -m tests.fuzz.holds` prints the
times.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.holds.controller import ControllerWalk
from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Case, Hold
from tests.fuzz.holds.walks import LIMIT_MS, WALKS, Walk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.codes import RequestCode

SLACK = 2
"""Factor for a machine that is slower than LIMIT_MS assumes."""
HELD_MS = SLACK * LIMIT_MS
ATTEMPTS = 3
LOOPS, LOOP_MS = 50_000, 13.0
"""Rounds of the loop that measures the pace, and its processor time on the machine that LIMIT_MS is
for when no other work runs."""
LEFT_OUT = {"a member of objects, 16 MiB", "brackets, 16 MiB", "escapes, 16 MiB", "zeros, 16 MiB"}
"""Common requests that are left out here; the command sends them, too."""
SAME = frozenset(
    {
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER, RequestCode.GET_UNIT_TOPIC_LIST,
    }
)  # fmt: skip
"""Codes that answer every request with the same table, in steps: a second of work for each."""
FEW = {"objects, 16 MiB"}
"""Common requests that the codes in SAME are sent here; the command sends all.

The codes' own large requests have no body.
"""


@pytest.fixture(params=list(WALKS))
def walk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Walk]]:
    """Each kind of node with full tables."""
    found = WALKS[request.param](tmp_path)
    yield request.param, found
    found.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_request_holds_the_loop(walk: tuple[str, Walk]) -> None:
    """No request holds the loop, and each code has large requests of its own: a new code without
    them is a KeyError.
    """
    _kind, node = walk
    held, waited = [], []
    for code in sorted(node.codes):
        cases = asked(node, code)
        for best in shortest(node, code, cases):
            if best.ms > HELD_MS:
                held.append((code, best))
            if best.waits:
                waited.append((code, best))
    assert not held
    assert not waited


def test_a_handler_that_holds_the_loop_or_waits_is_found(tmp_path: Path) -> None:
    """A loop over a request's data and a sync on the loop are found, planted in one code."""
    walk = ControllerWalk(tmp_path, groups=10)
    code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
    handlers = walk.world.table._handlers
    before = handlers[code]

    def slow(request: Any, peer: Any, now_ms: int) -> Any:
        ends_ns = time.thread_time_ns() + len(request.body or b"") // 1_000 * 30_000
        while time.thread_time_ns() < ends_ns:
            pass
        RealFiles().sync_folder(str(tmp_path))
        return before(request, peer, now_ms)

    handlers[code] = slow
    found = list(shortest(walk, code, asked(walk, code)))
    walk.close()
    assert any(hold.ms > HELD_MS for hold in found)
    assert all(hold.waits for hold in found if hold.part)


def pace() -> float:
    """How many times longer than on a quiet machine a fixed loop takes now, the shortest of three;
    at least 1. One slow loop must not excuse a hold."""
    times_ms = []
    for _ in range(3):
        since_ns, table = time.thread_time_ns(), {}
        for number in range(LOOPS):
            table[str(number)] = (number, number + 1)
        times_ms.append((time.thread_time_ns() - since_ns) / 1e6)
    return max(1.0, min(times_ms) / LOOP_MS)


def shortest(node: Walk, code: int, cases: list[Case]) -> Iterable[Hold]:
    """The shortest attempt of each request of a code; one attempt is enough where it is short."""
    best: dict[int, Hold] = {}
    for attempt in range(1, ATTEMPTS + 1):
        for number, case in enumerate(cases):
            if number not in best or best[number].ms > HELD_MS:
                hold = node.ask(code, case)
                if hold.ms > HELD_MS:
                    hold = replace(hold, ms=hold.ms / pace())
                best[number] = min(hold, best.get(number, hold), key=lambda one: one.ms)
        if all(hold.ms <= HELD_MS for hold in best.values()):
            break
        cases = asked(node, code, attempt)
    return best.values()


def asked(node: Walk, code: int, attempt: int = 0) -> list[Case]:
    """Requests of a code that are sent here."""
    common, cases = {case.name for case in generic({})}, node.cases(code, attempt)
    left_out = common - FEW if code in SAME else LEFT_OUT
    return [case for case in cases if case.name not in left_out]

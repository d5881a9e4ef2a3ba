"""OpenMessaging-Chaos's verdicts of a history (controller.md 24).

MQChecker, OrderChecker, RTOChecker and EndToEndLatencyChecker, by their rules; each result is a
dictionary here instead of YAML.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from interop.rebalance_chaos.history import Happened, History, Sent

SUCCESS: Final = "SUCCESS"
LATENCIES_MS: Final = (1, 5, 10, 100, 1000, 3000)


def verdicts(history: History) -> dict[str, Any]:
    """Return the verdicts of all checkers, by name."""
    return {
        "MQChecker": delivery(history),
        "OrderChecker": order(history),
        "RTOChecker": list(recovery(history)),
        "EndToEndLatencyChecker": latency(history),
    }


def delivery(history: History) -> dict[str, Any]:
    """Count lost messages (acknowledged and never received) and repeated ones (received while none
    was due)."""
    sent = [one for one in history.sends() if one.outcome == SUCCESS]
    waiting = Counter(one.value for one in sent)
    missing, twice = set(waiting), 0
    for got in history.gets():
        missing.discard(got.value)
        if waiting[got.value] > 0:
            waiting[got.value] -= 1
        else:
            twice += 1
    return {
        "enqueueSuccessCount": len(sent),
        "dequeueSuccessCount": sum(1 for _ in history.gets()),
        "lostMessageCount": len(missing),
        "lostMessages": sorted(missing, key=int)[:20],
        "duplicateMessageCount": twice,
        "atLeastOnce": not missing,
        "atMostOnce": not twice,
    }


def order(history: History) -> dict[str, Any]:
    """Check that the acknowledged messages of each key are a subsequence of the received ones."""
    came: dict[str, list[str]] = defaultdict(list)
    for got in history.gets():
        came[got.key].append(got.value)
    sent: dict[str, list[str]] = defaultdict(list)
    for one in history.sends():
        if one.outcome == SUCCESS:
            sent[one.key].append(one.value)
    wrong = {}
    for key, values in sent.items():
        rest = iter(came[key])
        # Search each message after the previous one's place.
        missed = next((value for value in values if value not in rest), None)
        if missed is not None:
            wrong[key] = missed
    return {"isOrdered": not wrong, "firstWrong": wrong}


def windows(history: History) -> Iterator[tuple[Happened, int]]:
    """Return each fault with the time of its end."""
    begun: Happened | None = None
    for one in history.faults():
        if one.is_start:
            begun = one
        elif begun is not None:
            yield begun, one.time_ms
            begun = None


def recovery(history: History) -> Iterator[dict[str, Any]]:
    """Report whether sends failed in a fault's window, and the time until a send succeeded."""
    sends = list(history.sends())
    for fault, end_ms in windows(history):
        inside = [one for one in sends if fault.time_ms <= one.time_ms <= end_ms]
        failed = next((one for one in inside if one.outcome != SUCCESS), None)
        again = None if failed is None else _first_success(inside, failed)
        took_ms = None
        if failed is not None and again is not None:
            took_ms = again.time_ms - (failed.time_ms - failed.latency_ms)
        yield {
            "fault": fault.name,
            "isUnavailableInFaultInterval": failed is not None,
            "isRecoveryInFaultInterval": failed is None or again is not None,
            "recoveryTimeMs": took_ms,
        }


def _first_success(sends: list[Sent], after: Sent) -> Sent | None:
    return next(
        (one for one in sends if one.time_ms >= after.time_ms and one.outcome == SUCCESS), None
    )


def latency(history: History) -> dict[str, Any]:
    """Count the messages received within each time limit, and find the 99th percentile."""
    found = sorted(one.end_to_end_ms for one in history.gets() if one.end_to_end_ms >= 0)
    counts: dict[str, Any] = {}
    least = -1
    for limit in LATENCIES_MS:
        counts[f"<={limit}ms"] = sum(least < one <= limit for one in found)
        least = limit
    counts[f">{least}ms"] = sum(one > least for one in found)
    counts["p99Ms"] = found[math.ceil(0.99 * len(found)) - 1] if found else None
    return counts

"""The audit over simulated failovers: whole runs pass, and bugs that play to their end are found.

The audit uses only the results that clients received and the files on the disks: the checkers of
the replication suite are disabled before a bug is planted.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shortcuts.verdicts import find_verdict
from tests.sim.dump import dump, watching, without_checkers
from tests.sim.group import suite as group_suite
from tests.sim.ha import suite as ha_suite
from tests.sim.ha.planted import (
    ABOUT,
    cut_at_the_confirmed,
    epoch_without_writes_refused,
    joins_before_it_has_all,
    missing_member_does_not_count,
    proposed_set_ignored,
    queues_counted_up_to_confirm,
    released_when_demoted,
    truncation_by_position,
)
from tests.sim.planting import Plant
from turbopump.engine.types import StoreError
from turbopump.spark.audit.job import Audit, run
from turbopump.spark.audit.verdicts import PromiseOutcome

SEEDS = (*range(59), 168)
"""The last one loses acknowledged messages by age."""
GROUP_SEEDS = range(3)
BUG_SEEDS = range(120)
BUGS: list[tuple[Plant, str, int]] = [
    (proposed_set_ignored, "acked-survives", 65),
    (missing_member_does_not_count, "replicas-equal", 16),
    (queues_counted_up_to_confirm, "queue-offsets", 24),
    (cut_at_the_confirmed, "truncation", 2),
    (truncation_by_position, "truncation", 299),
    (epoch_without_writes_refused, "one-writer", 2),
    (released_when_demoted, "acked-survives", 88),
    (joins_before_it_has_all, "replicas-equal", 387),
]
"""Planted bugs, each with a verdict of the audit that it breaks and the seed that is played first.
"""


def whole(suite: Any, seeds: range, folder: Path) -> Counter[tuple[str, str]]:
    """Audit one run of each seed, with every second run's stores closed cleanly; return how often
    each check was made.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        with watching() as watch:
            played = suite.Run(seed)
            played.play()
            if seed % 2:
                for broker in played.brokers:
                    broker.stop()
                    while broker.up:  # a master hands its lead over first
                        played.step()
            audit = run(None, dump(played, folder / str(seed), watch))
        assert not audit.is_broken, f"seed {seed}\n" + "\n".join(audit.lines())
        for verdict in audit.verdicts:
            counts.update({(verdict.name, what): n for what, n in verdict.counts.items()})
            counts[verdict.name, verdict.outcome.value] += 1
    return counts


def test_replicated_runs(tmp_path: Path) -> None:
    counts = whole(ha_suite, SEEDS, tmp_path)
    for name in ("records", "replicas-equal", "truncation", "queue-offsets"):
        assert counts[name, PromiseOutcome.HOLDS.value] == len(SEEDS)
    assert counts["acked-survives", "found"] > 100 and counts["consumed-survives", "found"] > 100
    assert counts["acked-survives", "too old to be there"] > 0
    assert counts["truncation", "cuts"] > 0
    assert counts["one-writer", "labels compared"] > 100


def test_runs_of_whole_groups(tmp_path: Path) -> None:
    counts = whole(group_suite, GROUP_SEEDS, tmp_path)
    assert counts["acked-survives", "found"] > 50
    assert counts["one-writer", PromiseOutcome.HOLDS.value] == len(GROUP_SEEDS)


@pytest.mark.parametrize("bug, verdict, first", BUGS, ids=[one[0].__name__ for one in BUGS])
def test_the_audit_finds(
    bug: Plant,
    verdict: str,
    first: int,
    plant: Callable[[Plant], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    plant(bug)
    without_checkers(monkeypatch)
    for number, seed in enumerate((first, *BUG_SEEDS)):
        audit = played_out(seed, ABOUT.get(bug, ()), tmp_path / str(number))
        if find_verdict(audit, verdict).outcome is PromiseOutcome.VIOLATED:
            return
    pytest.fail(f"not found in {BUG_SEEDS}")


def played_out(seed: int, about: tuple[str, ...], folder: Path) -> Audit:
    """A run with a bug, however it ends."""
    with watching() as watch:
        played = ha_suite.Run(seed, about)
        try:
            played.play()
        except (AssertionError, StoreError):
            pass  # the brokers did not become one again
        return run(None, dump(played, folder, watch))


def test_without_its_checkers_the_suite_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The suite itself finds nothing once its checkers are disabled, so that every finding is the
    audit's.
    """
    without_checkers(monkeypatch)
    for seed in SEEDS:
        audit = played_out(seed, (), tmp_path / str(seed))
        assert not audit.is_broken, f"seed {seed}\n" + "\n".join(audit.lines())

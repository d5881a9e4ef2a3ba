"""The suite of escapes: seeds that hold, and bugs that it finds."""

import pytest

from tests.sim.acting.operators import operator_of
from tests.sim.broker.remakes import REMADE_FROM
from tests.sim.escapes import halves, popped
from tests.sim.escapes.planted import BUGS, HALF_BUGS, POP_BUGS
from tests.sim.escapes.suite import Run, run_seed
from tests.sim.planting import Plant
from tests.sim.share import check_found, played

pytestmark = pytest.mark.timeout(900)  # a seed is a whole cluster: slow where others are at work

SEEDS = range(6)
POPPED = (2, 3, 0, 6)
REMADE = range(REMADE_FROM, REMADE_FROM + 6)


def test_due_messages_escape() -> None:
    found = [run_seed(seed)[1] for seed in played(SEEDS)]
    assert sum(one.escaped for one in found) > 10, "nothing escaped"
    assert sum(len(one.safe) for one in found) > 50, "nothing was sent"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, run_seed, range(40))


def test_half_messages_escape() -> None:
    found = [halves.run_seed(seed) for seed in played(SEEDS)]
    assert sum(one.moved for one in found) > 0, "no half message moved"
    assert sum(one.is_told for run in found for one in run.payer.payments) > 0, "none was ended"


@pytest.mark.parametrize("bug", HALF_BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_of_half_messages_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, halves.run_seed, range(40))


def test_popped_messages_escape() -> None:
    found = [popped.run_seed(seed) for seed in played(POPPED)]
    assert sum(one.escaped for one in found) > 0, "nothing escaped"
    assert sum(one.noted for one in found) > 0, "no replica heard an acknowledgement"
    assert sum(len(one.letters) for one in found) > 50, "nothing was sent"


@pytest.mark.parametrize("bug", POP_BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_of_popped_messages_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, popped.run_seed, range(40))


def test_topics_and_groups_are_deleted_and_made_again() -> None:
    found = [operator_of(Run(seed)) for seed in played(REMADE)]
    found += [operator_of(popped.Run(seed)) for seed in played(REMADE)]
    assert sum(one.asked for one in found), "nothing was deleted"
    assert sum(one.is_sure for one in found) > len(found) // 2, "hardly anything was judged"

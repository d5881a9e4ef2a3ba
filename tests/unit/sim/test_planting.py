"""A planted bug without an effect fails its test, and the failure names the reason."""

from types import SimpleNamespace

import pytest
from tests.sim import share
from tests.sim.planting import Patch, Plant
from tests.sim.share import CRASHES, LONG_BUGS, check_found, is_bug_played, is_crash_tried


class Clock:
    """The class in which bugs are planted."""

    is_exact = True

    def read(self, at: int) -> int:
        return at

    @property
    def zone(self) -> str:
        return "UTC"


def late(patch: Patch) -> None:
    patch.setattr(Clock, "read", lambda self, at: at + 1)


def run(seed: int) -> None:
    """A seed that only reads the clock."""
    assert Clock().read(seed) == seed


def check(bug: Plant, monkeypatch: pytest.MonkeyPatch, seeds: int = 3) -> None:
    check_found(bug, monkeypatch, run, range(seeds))


def test_a_plant_that_is_used_is_found_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    check(late, monkeypatch)
    run(7)


def test_a_planted_bug_that_wraps_an_uncalled_function_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def both(patch: Patch) -> None:
        late(patch)
        patch.setattr(Clock, "zone", property(lambda self: "CET"))

    with pytest.raises(pytest.fail.Exception, match=r"not take hold: Clock\.zone was never used"):
        check(both, monkeypatch)


def test_one_that_changes_nothing_did_not_take_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="not take hold: nothing"):
        check(lambda patch: None, monkeypatch)


def test_one_that_does_no_harm_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"not found in range\(0, 3\)"):
        check(lambda patch: patch.setattr(Clock, "read", lambda self, at: at), monkeypatch)


def test_one_whose_arguments_have_changed_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test fails even if the error is caught on its way and ends in a finding."""

    def run_quietly(seed: int) -> None:
        try:
            Clock().read(seed)
        except TypeError:
            raise AssertionError("found, it says") from None

    bug: Plant = lambda patch: patch.setattr(Clock, "read", lambda self: 0)  # noqa: E731
    with pytest.raises(pytest.fail.Exception, match=r"planted Clock\.read is broken: TypeError"):
        check_found(bug, monkeypatch, run_quietly, range(3))


def test_values_of_classes_and_tables_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"read": len}
    patch = Patch(monkeypatch)
    patch.setattr(Clock, "is_exact", False)
    patch.setitem(table, "read", lambda text: -1)
    assert not patch.was_used
    assert Clock().is_exact is False and table["read"]("x") == -1
    patch.check()
    with pytest.raises(AssertionError, match="is read cannot be seen"):
        patch.setattr(SimpleNamespace(__name__="place", MAX=3), "MAX", 4)


def test_a_run_plays_a_part_of_the_slow_planted_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [f"tests/sim/group/test_seeds.py::test_the_suite_finds[{bug}]" for bug in "abcd"]
    others = [
        "tests/sim/group/test_seeds.py::test_group[0]",
        "tests/sim/test_planted.py::test_the_store_suite_finds[a]",
        "tests/sim/test_planted.py::test_the_store_suite_finds[b]",
    ]
    monkeypatch.setattr(share, "IS_WHOLE", False)
    assert list(is_bug_played([*slow, *others])) == [True, False, False, True, True, True, True]
    long = [f"tests/sim/group/test_seeds.py::test_the_suite_finds[{bug}]" for bug in LONG_BUGS]
    assert not any(is_bug_played([*long, "tests/sim/pops/x.py::test_finds_batches_of_one_broker"]))
    monkeypatch.setattr(share, "IS_REST", True)
    assert list(is_bug_played([*slow, *others])) == [False, True, True, False, *[False] * 3]
    monkeypatch.setattr(share, "IS_WHOLE", True)
    monkeypatch.setattr(share, "IS_REST", False)
    assert all(is_bug_played([*slow, *others]))


def test_the_cases_of_a_crash_try_all_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "IS_WHOLE", False)
    tried = [sum(is_crash_tried(at, case) for case in range(CRASHES)) for at in range(20)]
    assert tried == [1] * 20
    monkeypatch.setattr(share, "IS_WHOLE", True)
    assert all(is_crash_tried(at, 0) for at in range(20))

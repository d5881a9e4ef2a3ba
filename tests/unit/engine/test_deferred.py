"""Values that arrive later: alone, at once, and several together."""

import pytest

from turbopump.engine.deferred import Deferred, gather


def test_callbacks_run_in_the_order_of_their_registration() -> None:
    value: Deferred[int] = Deferred()
    seen: list[str] = []
    value.then(lambda one: seen.append(f"first {one}"))
    value.then(lambda one: seen.append(f"second {one}"))
    assert not value.done and seen == []
    value.resolve(7)
    value.then(lambda one: seen.append(f"late {one}"))
    assert seen == ["first 7", "second 7", "late 7"]
    with pytest.raises(AssertionError, match="resolved twice"):
        value.resolve(8)


def test_a_value_that_is_there() -> None:
    value = Deferred.resolved("now")
    assert value.done and value.value == "now"
    assert value.map(len).value == 3


def test_values_are_gathered_in_the_order_of_their_parts() -> None:
    parts = [Deferred[int](), Deferred.resolved(2), Deferred[int]()]
    whole = gather(parts)
    parts[2].resolve(3)
    assert not whole.done
    parts[0].resolve(1)
    assert whole.value == [1, 2, 3]


def test_nothing_to_gather_is_there_at_once() -> None:
    assert gather(list[Deferred[int]]()).value == []

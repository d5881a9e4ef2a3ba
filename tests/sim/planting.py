"""Planting of bugs: one at a time, and each has to take effect.

Owns the replacements that a plant makes, and how often each was used since. A plant that wraps a
function without callers finds nothing, or lets another fault pass for its own: here it fails its
test with the names of the unused replacements. So does a plant that raises, as when the arguments
of the wrapped function have changed. It must never know the effect of a bug.
"""

import functools
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest

Plant = Callable[["Patch"], None]
"""A bug: a function that makes its changes with the given patch."""

_OWN_ERRORS = (TypeError, AttributeError, NameError)


class Patch:
    """Interface of a plant for its changes, which are undone with the underlying `MonkeyPatch`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: "Patch | None" = None) -> None:
        """`before`: patch of an earlier planting of the same bug, whose uses and errors
        count, too.
        """
        self._monkeypatch = monkeypatch
        self._uses: dict[str, int] = {} if before is None else before._uses
        self._errors: dict[str, Exception] = {} if before is None else before._errors

    def setattr(self, target: Any, name: str, value: Any, raising: bool = True) -> None:
        """Replace an attribute as pytest's `setattr` does; a value that is no function replaces a
        property.
        """
        place = f"{target.__name__}.{name}"
        is_class = isinstance(target, type)
        self._monkeypatch.setattr(target, name, self._seen(place, value, is_class), raising)

    def setitem(self, target: MutableMapping[Any, Any], name: Any, value: Any) -> None:
        """Replace an entry as pytest's `setitem` does, in a table of functions."""
        self._monkeypatch.setitem(target, name, self._seen(f"[{name!r}]", value, False))

    @contextmanager
    def context(self) -> Iterator[pytest.MonkeyPatch]:
        """Patch for changes while a planted function runs."""
        with self._monkeypatch.context() as inside:
            yield inside

    @property
    def was_used(self) -> bool:
        """Whether all that was put in place was used."""
        return bool(self._uses) and all(self._uses.values())

    def check(self) -> None:
        """Fail unless the plant was used and raised no errors."""
        self.check_errors()
        if not self.was_used:
            unused = [place for place, uses in self._uses.items() if not uses] or ["nothing"]
            pytest.fail(f"the plant did not take hold: {', '.join(unused)} was never used")

    def check_errors(self) -> None:
        """No planted function broke by itself."""
        for place, error in self._errors.items():
            pytest.fail(f"the planted {place} is broken: {error!r}")

    def _seen(self, place: str, value: Any, is_class: bool) -> Any:
        self._uses.setdefault(place, 0)
        if isinstance(value, property):
            get = self._counted(place, value.fget)
            return property(get, value.fset, value.fdel)
        if callable(value):
            return self._counted(place, value)
        assert is_class, f"whether {place} is read cannot be seen"
        return property(self._counted(place, lambda _self: value))

    def _counted(self, place: str, function: Any) -> Any:
        @functools.wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            self._uses[place] += 1
            try:
                return function(*args, **named)
            except _OWN_ERRORS as error:
                self._errors[place] = error
                raise

        return counted

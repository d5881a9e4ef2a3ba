"""How bugs are planted: one at a time, and each has to take hold.

Owns what a plant puts in place and how often that was used since. A plant that wraps what is no
longer called finds nothing, or lets another fault pass for its own: here it fails its test and says
what was not used. So does one that breaks by itself, as when the arguments of what it wraps have
changed. It must never know what a bug does. Called by `share.check_found` and the fixture `plant`.
"""

import functools
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest

Plant = Callable[["Patch"], None]
"""One bug: it puts what it changes in place with the patch that it is given."""

_OWN_ERRORS = (TypeError, AttributeError, NameError)


class Patch:
    """What a plant is given. All that it sets is undone with the `MonkeyPatch` behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: "Patch | None" = None) -> None:
        """`before`: the same plant was planted before, and what was used then counts, too."""
        self._monkeypatch = monkeypatch
        self._uses: dict[str, int] = {} if before is None else before._uses
        self._errors: dict[str, Exception] = {} if before is None else before._errors

    def setattr(self, target: Any, name: str, value: Any, raising: bool = True) -> None:
        """As that of pytest; a value that is no function takes the place of a property."""
        place = f"{target.__name__}.{name}"
        is_class = isinstance(target, type)
        self._monkeypatch.setattr(target, name, self._seen(place, value, is_class), raising)

    def setitem(self, target: MutableMapping[Any, Any], name: Any, value: Any) -> None:
        """As that of pytest, for a table of functions."""
        self._monkeypatch.setitem(target, name, self._seen(f"[{name!r}]", value, False))

    @contextmanager
    def context(self) -> Iterator[pytest.MonkeyPatch]:
        """For what is changed while a planted function runs."""
        with self._monkeypatch.context() as inside:
            yield inside

    @property
    def was_used(self) -> bool:
        """Whether all that was put in place was used."""
        return bool(self._uses) and all(self._uses.values())

    def check(self) -> None:
        """It was, and did what it is meant to do."""
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

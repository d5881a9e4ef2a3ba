"""A value that arrives later, without a loop.

Owns the callback cell for a single value that cores and handlers use instead of a future. It must
never import asyncio or start anything.

    waiting --resolve--> done
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """A value that is resolved exactly once, on the loop thread. It has no error state: a failure
    is one of the possible values. An exception of a callback passes through to the caller of
    `resolve`, and the remaining callbacks do not run."""

    __slots__ = ("_callbacks", "_done", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[T], None]] = []
        self._done = False
        self._value: T

    @classmethod
    def resolved(cls, value: T) -> "Deferred[T]":
        """A Deferred that has its value from the beginning."""
        made: Deferred[T] = cls()
        made.resolve(value)
        return made

    @property
    def done(self) -> bool:
        """Whether `resolve` was called."""
        return self._done

    @property
    def value(self) -> T:
        """The value. Reading it before `done` is a programmer error (AssertionError)."""
        assert self._done, "value read before it was resolved"
        return self._value

    def resolve(self, value: T) -> None:
        """Set the value, then run the callbacks in the order of their `then`, before this call
        returns. Resolving twice is a programmer error (AssertionError)."""
        assert not self._done, "resolved twice"
        self._value = value
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Call `callback(value)` once, inside `resolve`; inside this call if the value is there
        already."""
        if self._done:
            callback(self._value)
        else:
            self._callbacks.append(callback)

    def map(self, function: Callable[[T], U]) -> "Deferred[U]":
        """A new Deferred that resolves with `function(value)` when this Deferred resolves; at once
        if it has resolved."""
        mapped: Deferred[U] = Deferred()
        resolve = mapped.resolve
        self.then(lambda value: resolve(function(value)))
        return mapped


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """A Deferred that resolves with the values of all parts, in the order of `parts`, when the last
    part resolves; at once if `parts` is empty."""
    if not parts:
        return Deferred.resolved([])
    gathered: Deferred[list[T]] = Deferred()
    missing = len(parts)

    def on_part_resolved(_value: T) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            gathered.resolve([part.value for part in parts])

    for part in parts:
        part.then(on_part_resolved)
    return gathered

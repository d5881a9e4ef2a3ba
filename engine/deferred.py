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
    """A value that is resolved exactly once, on the loop thread; callbacks run at once, in order of
    `then`."""

    __slots__ = ("_callbacks", "_done", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[T], None]] = []
        self._done = False
        self._value: T

    @classmethod
    def resolved(cls, value: T) -> "Deferred[T]":
        """A Deferred whose value is there already."""
        made: Deferred[T] = cls()
        made.resolve(value)
        return made

    @property
    def done(self) -> bool:
        """Whether the value is there."""
        return self._done

    @property
    def value(self) -> T:
        """The value. Reading it before `done` is a programmer error."""
        assert self._done, "value read before it was resolved"
        return self._value

    def resolve(self, value: T) -> None:
        """Set the value and run the callbacks. Resolving twice is a programmer error."""
        assert not self._done, "resolved twice"
        self._value = value
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Run `callback(value)` once the value is there (now, if it is there already)."""
        if self._done:
            callback(self._value)
        else:
            self._callbacks.append(callback)

    def map(self, function: Callable[[T], U]) -> "Deferred[U]":
        """A Deferred that resolves with `function` of this one's value."""
        mapped: Deferred[U] = Deferred()
        resolve = mapped.resolve
        self.then(lambda value: resolve(function(value)))
        return mapped


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """The values of all parts in their order, once the last one is there; at once without parts."""
    if not parts:
        return Deferred.resolved([])
    gathered: Deferred[list[T]] = Deferred()
    missing = len(parts)

    def arrived(_value: T) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            gathered.resolve([part.value for part in parts])

    for part in parts:
        part.then(arrived)
    return gathered

"""The tests that take long, which `make test` leaves out.

Owns the choice of tests by their marker `long`. It must never leave out a test that a run names.
`make long` plays the tests with the marker: stories of real processes that take ten seconds or more
of a processor, or a minute. `.ci/run` plays them after `make test`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

MARKER: Final = "long"


class Item(Protocol):
    """Interface of a test that this module needs."""

    def get_closest_marker(self, name: str) -> object | None:
        """The marker of a test with this name."""


class Options(Protocol):
    """Interface of the command line that this module needs."""

    keyword: str
    markexpr: str


def left_out(items: Sequence[Item], options: Options, arguments: Sequence[str]) -> list[Item]:
    """The tests that this run leaves out.

    `arguments`: paths and ids of the command line. A run with an expression of names or markers, or
    with ids of tests, leaves out nothing.
    """
    if options.keyword or options.markexpr or any("::" in argument for argument in arguments):
        return []
    return [item for item in items if item.get_closest_marker(MARKER) is not None]

"""A transaction, as the suites that carry some know it."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Payment:
    """A transaction, as its payer knows it."""

    number: int
    body: bytes
    commits: bool
    places: list[tuple[int, int]] = field(default_factory=list)
    is_safe: bool = False
    is_told: bool = False
    """Whether its end was acknowledged."""

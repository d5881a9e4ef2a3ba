"""The results of a scenario of the Python client, a line of JSON for each check.

Knows no client.
"""

import json
import threading
import time
from collections.abc import Callable

DELIVERY_S = 45
_printing = threading.Lock()


class Report:
    """A scenario's lines, in the format that support/suites.py reads."""

    def __init__(self, scenario: str) -> None:
        self._scenario = scenario
        self._began = time.monotonic()

    def check(self, what: str, ok: bool, detail: object = "") -> None:
        """Print whether a condition holds."""
        after_ms = round((time.monotonic() - self._began) * 1_000)
        self._print("check", what=what, ok=ok, after_ms=after_ms, detail=str(detail)[:2_000])

    def equal(self, what: str, wanted: object, found: object) -> None:
        """Print whether two values are equal."""
        self.check(what, wanted == found, f"wanted {wanted}, found {found}")

    def done(self) -> None:
        """Print that the scenario reached its end."""
        self._print("done")

    def _print(self, kind: str, **more: object) -> None:
        line = json.dumps({"kind": kind, "scenario": self._scenario, **more})
        with _printing:
            print(line, flush=True)


def within(condition: Callable[[], bool], seconds: float = DELIVERY_S) -> bool:
    """Wait until a condition holds, and return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True

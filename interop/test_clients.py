"""Every scenario of every client, one test each."""

import pytest

from interop.support.suites import SCENARIOS, Suites

# The first test of a suite runs all of it, and the very first one builds the clients.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
CASES = [(suite, scenario) for suite, scenarios in SCENARIOS.items() for scenario in scenarios]


@pytest.mark.parametrize(("suite", "scenario"), CASES)
def test_client(suites: Suites, suite: str, scenario: str) -> None:
    """All checks of the scenario hold and it came to its end."""
    checks = suites.result(suite, scenario)
    assert not checks.failed, "\n".join(checks.failed)
    assert checks.ended, f"it stopped after {checks.passed[-1:]}"
    assert checks.passed

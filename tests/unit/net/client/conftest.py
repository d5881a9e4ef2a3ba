"""The scripted cluster in place of the client's connections."""

import pytest
from tests.unit.net.client.cluster import ScriptedCluster

from turbopump.net.client import instance


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    """No broker yet: `add` makes some. Instances that start from now on are connected to it."""
    made = ScriptedCluster()
    monkeypatch.setattr(instance, "Client", made)
    return made

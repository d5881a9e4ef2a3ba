"""The scripted cluster in place of the client's connections."""

import pytest
from tests.unit.net.client.cluster import ScriptedCluster

from turbopump.net.client import client_instance


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    """A cluster without brokers, to which `add` adds some; later instances connect to it."""
    made = ScriptedCluster()
    monkeypatch.setattr(client_instance, "Client", made)
    return made

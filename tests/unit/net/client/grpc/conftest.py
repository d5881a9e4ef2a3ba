"""The scripted server in place of the channels of sessions."""

import pytest
from tests.unit.net.client.grpc.scripted import ScriptedServer

from turbopump.net.client.grpc import session


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    """A server to which each later session connects."""
    made = ScriptedServer()
    monkeypatch.setattr(session, "GrpcChannel", made)
    monkeypatch.setattr(session, "why_no_grpc", lambda: None)
    return made

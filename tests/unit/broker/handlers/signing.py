"""A broker with authentication, and users that sign their requests."""

import json
from collections.abc import Callable, Generator
from typing import Any

from tests.unit.broker.conftest import World

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import sign_request

ROOT, SECRET = "root", "super-secret"
AUTHENTICATED = (
    "brokerClusterName=C\nauthenticationEnabled=true\n"
    f'initAuthenticationUser={{"username":"{ROOT}","password":"{SECRET}"}}\n'
)
SECURED = AUTHENTICATED + "authorizationEnabled=true\n"


class Secured:
    """A world whose requests are signed; `entries` of `user` are the policies of a new user."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.secrets = {ROOT: SECRET}

    def ask(
        self,
        user: str,
        code: int,
        body: bytes | Any = b"",
        fields: dict[str, str] | None = None,
        peer: Peer | None = None,
        change: Callable[[Command], None] = lambda _request: None,
    ) -> Command:
        """Send a request that `user` signs ("": it is unsigned); `change` alters it after."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Command(code, fields=dict(fields or {}), body=text)
        if user:
            sign_request(request, user, self.secrets.get(user, "no secret"))
        change(request)
        response = self.world.table.dispatch(request, peer or self.world.client, self.world.now_ms)
        if isinstance(response, Generator):
            response = run_to_result(response)
        if isinstance(response, Deferred):
            if not response.done:
                self.world.turn()
            if not response.done:
                self.world.pass_time(1_000)
            assert response.done
            response = response.value
        assert isinstance(response, Command)
        return response

    def user(self, name: str, *entries: dict[str, Any], kind: str = "Normal") -> str:
        """Create a user with these entries."""
        self.secrets[name] = f"secret of {name}"
        members = {"password": self.secrets[name], "userType": kind}
        response = self.ask(ROOT, RequestCode.AUTH_CREATE_USER, members, {"username": name})
        assert response.code == 0, response.remark
        if entries:
            self.allow(name, *entries)
        return name

    def allow(self, name: str, *entries: dict[str, Any]) -> None:
        """Add entries to the policies of a user."""
        acl = {"subject": f"User:{name}", "policies": [{"entries": list(entries)}]}
        response = self.ask(ROOT, RequestCode.AUTH_CREATE_ACL, acl, {"subject": f"User:{name}"})
        assert response.code == 0, response.remark


def entry(resource: str, *actions: str, decision: str = "Allow") -> dict[str, Any]:
    """An entry of a policy."""
    return {"resource": resource, "actions": list(actions), "decision": decision}

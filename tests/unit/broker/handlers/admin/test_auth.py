"""Requests 3001 to 3010: RocketMQ 5.5.0's answers, without secrets."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.handlers.signing import ROOT, SECRET, SECURED, Secured, entry

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import sign_request

CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER, LIST_USERS = range(3001, 3006)
CREATE_ACL, UPDATE_ACL, DELETE_ACL, GET_ACL, LIST_ACLS = range(3006, 3011)
DENIED = ResponseCode.NO_PERMISSION


@pytest.fixture
def secured(make_world: Callable[..., World]) -> Secured:
    return Secured(make_world(SECURED))


def answer(response: Command) -> tuple[int, str | None]:
    return response.code, response.remark


def test_users(secured: Secured) -> None:
    def ask(code: int, body: Any = b"", **fields: str) -> Command:
        return secured.ask(ROOT, code, body, fields)

    alice = {"username": "body", "password": "hidden"}
    assert answer(ask(CREATE_USER, alice, username="alice")) == (0, None)
    assert answer(ask(CREATE_USER, alice, username="alice")) == (DENIED, "The user is existed")
    blank = {"password": " "}
    assert answer(ask(CREATE_USER, blank, username="b")) == (DENIED, "password can not be blank")
    assert answer(ask(CREATE_USER, alice)) == (29, "The username is blank")
    assert ask(CREATE_USER, b"", username="b").code == 1
    assert answer(ask(UPDATE_USER, alice, username="b")) == (DENIED, "The user is not exist")
    assert answer(ask(UPDATE_USER, {"userStatus": "disable"}, username="alice")) == (0, None)
    shown = {"username": "alice", "userType": "Normal", "userStatus": "disable"}
    assert json.loads(ask(GET_USER, username="alice").body) == shown
    assert answer(ask(GET_USER, username="nobody")) == (0, None)
    assert ask(GET_USER, username="nobody").body == b""
    assert answer(ask(GET_USER)) == (29, "The username is blank")
    listed = ask(LIST_USERS)
    assert [one["username"] for one in json.loads(listed.body)] == ["alice", ROOT]
    assert json.loads(ask(LIST_USERS, filter="lic").body) == [shown]
    assert ask(LIST_USERS, filter="x").body == b""
    assert answer(ask(DELETE_USER, username="alice")) == (0, None)
    assert answer(ask(DELETE_USER, username="alice")) == (0, None)
    assert answer(ask(DELETE_USER)) == (DENIED, "username can not be blank")
    assert ask(GET_USER, username="alice").body == b""


def test_policies(secured: Secured) -> None:
    def ask(code: int, body: Any = b"", **fields: str) -> Command:
        return secured.ask(ROOT, code, body, fields)

    secured.user("alice")
    one = {"policies": [{"entries": [entry("topic:T", "pub")]}]}
    assert answer(ask(CREATE_ACL, one, subject="User:alice")) == (0, None)
    shown = {
        "subject": "User:alice",
        "policies": [{"policyType": "Custom", "entries": [entry("Topic:T", "Pub")]}],
    }
    assert json.loads(ask(GET_ACL, subject="User:alice").body) == shown
    deny = {"policies": [{"entries": [entry("Topic:T", "Sub", decision="Deny")]}]}
    assert ask(UPDATE_ACL, {**deny, "subject": "User:alice"}, subject="User:x").code == 0
    other = {"policies": [{"policyType": "Default", "entries": [entry("Group:*", "All")]}]}
    assert ask(UPDATE_ACL, other, subject="User:alice").code == 0
    found = json.loads(ask(GET_ACL, subject="User:alice").body)["policies"]
    assert [policy["entries"][0]["decision"] for policy in found] == ["Deny", "Allow"]
    assert json.loads(ask(LIST_ACLS).body)[0]["subject"] == "User:alice"
    some = json.loads(ask(LIST_ACLS, subjectFilter="ali", resourceFilter="Group").body)
    assert [policy["policyType"] for policy in some[0]["policies"]] == ["Default"]
    assert ask(LIST_ACLS, resourceFilter="zzz").body == b""
    assert ask(LIST_ACLS, subjectFilter="zzz").body == b""
    gone = {"subject": "User:alice", "resource": "Topic:T"}
    assert answer(ask(DELETE_ACL, **gone)) == (0, None)
    assert answer(ask(DELETE_ACL, **gone)) == (DENIED, "The acl is not exist.")
    of_default = {"subject": "User:alice", "resource": "Group:*", "policyType": "Default"}
    assert answer(ask(DELETE_ACL, **of_default)) == (0, None)
    assert answer(ask(GET_ACL, subject="User:alice")) == (0, None)
    assert ask(GET_ACL, subject="User:alice").body == b""
    assert answer(ask(DELETE_ACL, subject="User:alice")) == (DENIED, "The acl is not exist.")
    assert answer(ask(GET_ACL, subject="User:x")) == (DENIED, "The subject is not exist.")
    assert answer(ask(DELETE_ACL, subject="User:x")) == (DENIED, "The subject is not exist.")
    assert answer(ask(GET_ACL)) == (DENIED, "The subject is null.")
    unknown = (DENIED, "The subject of User:x is not exist.")
    assert answer(ask(CREATE_ACL, one, subject="User:x")) == unknown
    assert ask(CREATE_ACL, {"policies": []}, subject="User:alice").code == 1
    assert ask(CREATE_ACL, {}, subject="User:alice").code == 1
    bad = {"policies": [{"entries": [entry("nonsense", "Pub")]}]}
    assert answer(ask(CREATE_ACL, bad, subject="User:alice")) == (DENIED, "The resource is null.")


def test_operators_may_read_but_not_change(secured: Secured) -> None:
    operator = secured.user("op", entry("Cluster:C", "All"))
    for code in (LIST_USERS, GET_USER, GET_ACL, LIST_ACLS):
        fields = {"username": ROOT, "subject": f"User:{operator}"}
        assert secured.ask(operator, code, b"", fields).code == 0
    for code in (CREATE_USER, UPDATE_USER, DELETE_USER, CREATE_ACL, UPDATE_ACL, DELETE_ACL):
        fields = {"username": ROOT, "subject": f"User:{operator}"}
        assert secured.ask(operator, code, {"password": "x"}, fields).code == DENIED
    assert secured.ask(operator, RequestCode.GET_BROKER_CONFIG).code == 0


def test_no_answer_and_no_log_has_a_secret(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secured.user("alice", entry("*", "All"))
    operator = secured.user("op", entry("Cluster:C", "All"))
    answers = []
    for user in (ROOT, operator):
        for code in [*range(3001, 3011), 25, 26, 28]:
            fields = {"username": "alice", "subject": "User:alice"}
            bodies = (
                b"",
                {"password": "other-hidden", "userStatus": "x"},
                b'initAuthenticationUser={"username":"x","password":"hidden"}\n',
            )
            answers += [secured.ask(user, code, body, fields) for body in bodies]
    text = "".join(f"{one.remark}{one.fields}{one.body}" for one in answers) + caplog.text
    for secret in (SECRET, "secret of", "hidden"):
        assert secret not in text
    assert "innerClient" not in text and "initAuthenticationUser=" not in text


def test_the_keys_cannot_be_changed_by_a_request(secured: Secured) -> None:
    for line in (
        "authenticationEnabled=false",
        "authorizationEnabled=false",
        "authenticationWhitelist=26",
        "authorizationWhitelist=26",
        'initAuthenticationUser={"username":"eve","password":"hidden"}',
        'innerClientAuthenticationCredentials={"accessKey":"eve","secretKey":"hidden"}',
        "authSecretsKeyFile=/dev/null",
    ):
        response = secured.ask(ROOT, RequestCode.UPDATE_BROKER_CONFIG, f"{line}\n".encode())
        assert response.code != 0, line
        assert "hidden" not in (response.remark or "")
    assert secured.world.saved == []


def test_the_answer_waits_for_the_disk(secured: Secured) -> None:
    world = secured.world
    world.config_disk.hold()
    request = Command(CREATE_USER, fields={"username": "alice"}, body=b'{"password":"s"}')
    sign_request(request, ROOT, SECRET)
    response = world.table.dispatch(request, world.client, world.now_ms)
    assert isinstance(response, Deferred) and not response.done
    world.config_disk.release()
    assert response.done and response.value.code == 0


def test_users_survive_a_restart_and_the_first_ones_stay(
    make_world: Callable[..., World],
) -> None:
    inner = 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-s"}\n'
    secured = Secured(make_world(SECURED + inner))
    secured.secrets["inner"] = "inner-s"
    assert secured.ask("inner", RequestCode.GET_BROKER_CONFIG).code == 0
    secured.user("alice", entry("Topic:T", "Pub"))
    secured.ask(ROOT, UPDATE_USER, {"password": "changed"}, {"username": ROOT})
    secured.world.close()
    secured.world.open()
    assert secured.ask(ROOT, LIST_USERS).code == DENIED
    secured.secrets[ROOT] = "changed"
    names = [one["username"] for one in json.loads(secured.ask(ROOT, LIST_USERS).body)]
    assert names == ["alice", "inner", ROOT]


def test_copying_users_between_brokers_with_one_key(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(base64.b64encode(bytes(range(32))))
    text = f"{SECURED}authSecretsKeyFile={path}\n"
    first, second = Secured(make_world(text)), Secured(make_world(text, "second"))
    first.user("alice", entry("Topic:T", "Pub"))
    members = json.loads(first.ask(ROOT, GET_USER, b"", {"username": "alice"}).body)
    assert members["password"].startswith("gcm1:")
    assert second.ask(ROOT, CREATE_USER, members, {"username": "alice"}).code == 0
    second.secrets["alice"] = first.secrets["alice"]
    assert second.ask("alice", RequestCode.HEART_BEAT, {"clientID": "c"}).code == 0
    operator = first.user("op", entry("Cluster:C", "Get"))
    assert b"gcm1" not in first.ask(operator, LIST_USERS).body


def test_long_lists_are_answered_in_steps(secured: Secured) -> None:
    for number in range(450):
        secured.user(f"u{number}", entry("Topic:T", "Pub"))
    assert len(json.loads(secured.ask(ROOT, LIST_USERS).body)) == 451
    assert len(json.loads(secured.ask(ROOT, LIST_ACLS).body)) == 450

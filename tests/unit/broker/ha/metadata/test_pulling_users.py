"""Users and policies of a master, copied by its replica."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.ha.pairs import MASTER, Group
from tests.unit.broker.handlers.signing import ROOT, SECURED, Secured, entry

from turbopump.broker.auth.table import FILE_NAME
from turbopump.broker.tables.data_versions import VersionRules
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import sign_request

INNER = "inner-secret"
KEYS = (
    "haListenPort=10912\n"
    'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"%s"}\n'
)


class Pair:
    """A master and a replica with authentication; the replica signs as `inner`."""

    def __init__(
        self, make_world: Callable[..., World], secret: str = INNER, of_replica: str = INNER
    ) -> None:
        self.group = Group(make_world, SECURED + KEYS % secret, SECURED + KEYS % of_replica)
        self.master = Secured(self.group.master)
        self.replica = Secured(self.group.replica)
        master = self.group.master

        def ask(request: Command) -> Any:
            sent = Command(request.code, fields=dict(request.fields), body=request.body)
            sign_request(sent, "inner", of_replica)
            self.sent = sent
            return master.dispatch(sent)

        self.group.link.target = ask
        for world in (self.group.master, self.group.replica):
            # Whole brokers decide by their configuration; here both are in one process.
            assert world.broker.users is not None and world.broker.users_sealer is not None

    def names(self) -> list[str]:
        users = self.group.replica.broker.users
        assert users is not None
        return users.user_names()


@pytest.fixture
def pair(make_world: Callable[..., World]) -> Pair:
    return Pair(make_world)


def test_a_replica_decides_as_its_master(pair: Pair) -> None:
    ann = pair.master.user("ann", entry("Topic:T", "Get"))
    pair.group.round()
    assert pair.group.follower.error == ""
    pair.replica.secrets["ann"] = pair.master.secrets["ann"]
    fields = {"topic": "TBW102", "queueId": "0"}
    pair.master.allow(ann, entry("Topic:TBW102", "Get"))
    pair.group.round()
    assert pair.replica.ask(ann, RequestCode.GET_MIN_OFFSET, b"", fields).code == 0
    pair.master.allow(ann, entry("Topic:TBW102", "Get", decision="Deny"))
    pair.group.round()
    assert pair.replica.ask(ann, RequestCode.GET_MIN_OFFSET, b"", fields).code == 16
    pair.master.ask(ROOT, RequestCode.AUTH_DELETE_USER, b"", {"username": ann})
    pair.group.round()
    assert pair.names() == ["inner", ROOT]
    master, replica = pair.group.master.broker.users, pair.group.replica.broker.users
    assert master is not None and replica is not None
    assert master.data_version == replica.data_version


def test_an_unchanged_table_is_not_sent_again(pair: Pair) -> None:
    pair.master.user("ann")
    pair.group.round()
    before = pair.group.replica.broker.users.data_version  # type: ignore[union-attr]
    pair.group.round()
    answered = pair.group.link.answer(pair.group.link.asked[-1])
    assert isinstance(answered, Command) and (answered.code, answered.body) == (0, b"")
    assert pair.group.replica.broker.users.data_version == before  # type: ignore[union-attr]


def test_a_copy_has_no_secret_in_clear_text(pair: Pair) -> None:
    pair.master.user("ann", entry("Topic:T", "Get"))
    request = {"copyOfVersion": "none"}
    pair.master.secrets["inner"] = INNER
    copy = pair.master.ask("inner", RequestCode.AUTH_LIST_USER, b"", request)
    members = json.loads(copy.body)
    assert sorted(members["users"]) == ["ann", "inner", ROOT]
    assert b"secret" not in copy.body
    operator = pair.master.user("op", entry("Cluster:C", "All"))
    assert pair.master.ask(operator, RequestCode.AUTH_LIST_USER, b"", request).code == 16
    assert pair.master.ask("", RequestCode.AUTH_LIST_USER, b"", request).code == 16


def test_a_replica_with_another_inner_secret_copies_nothing(
    make_world: Callable[..., World],
) -> None:
    pair = Pair(make_world, of_replica="another")
    pair.master.user("ann")
    pair.group.round()
    assert "check signature failed" in pair.group.follower.error
    assert pair.names() == ["inner", ROOT]


def test_a_replica_takes_no_changes(make_world: Callable[..., World]) -> None:
    replica = Secured(make_world(f"{SECURED}{KEYS % INNER}brokerRole=SLAVE\nbrokerId=1\n"))
    user = {"password": "s"}, {"username": "x"}
    response = replica.ask(ROOT, RequestCode.AUTH_CREATE_USER, *user)
    assert response.code == 1 and "master" in (response.remark or "")
    assert replica.ask(ROOT, RequestCode.AUTH_LIST_USER).code == 0


def test_a_later_table_is_kept(pair: Pair) -> None:
    """A replica that led later than its master has the newer table, if there are epochs (I13)."""
    users = pair.group.replica.broker.users
    assert users is not None and isinstance(users.versions, VersionRules)
    pair.group.follower.begin_leading(7, 9)
    assert users.data_version.state_version == 7
    pair.master.user("ann")
    pair.group.follower.begin_following(MASTER, 8, pair.group.replica.steady_ms)
    pair.group.round()
    assert pair.names() == ["inner", ROOT]
    pair.group.lead.begin_leading(8, 9)
    pair.group.round()
    assert pair.names() == ["ann", "inner", ROOT]


def test_a_group_without_inner_credentials_is_reported(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    make_world(f"{SECURED}haListenPort=10912\n")
    assert "innerClientAuthenticationCredentials" in caplog.text


def test_copies_are_saved(pair: Pair) -> None:
    pair.master.user("ann")
    pair.group.round()
    saved = pair.group.replica.files.load(FILE_NAME)
    assert "ann" in saved["users"]

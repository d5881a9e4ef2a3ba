"""mqadmin's commands for users and policies, and a Java client under each kind of credentials.

The same stories run against RocketMQ 5.5.0 (`--target rocketmq`). mqadmin's sendMessage is a
program of the Java client that signs with the credentials of tools.yml.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.acl.test_signatures import ROOT, SETTINGS
from interop.support import groups
from interop.support.groups import CLUSTER, Kind, Ports
from interop.support.mqadmin import Admin
from turbopump import Credentials

pytestmark = [pytest.mark.interop, pytest.mark.timeout(540)]
ALICE = Credentials("alice", "al1ce")
TOPIC, OTHER = "owned", "foreign"
DENIED = "CODE: 16"


class Session:
    """An mqadmin whose user changes with its file of credentials."""

    def __init__(self, group: groups.Group, folder: Path) -> None:
        self.broker = group.ports.broker_address
        self._file = folder / "conf" / "tools.yml"
        self._file.parent.mkdir(parents=True)
        self.become(ROOT)
        self.admin = Admin(group, folder)

    def become(self, user: Credentials | None) -> None:
        """Let the next commands be signed by this user; None: unsigned."""
        self._file.unlink(missing_ok=True)
        if user is not None:
            text = f"accessKey: {user.access_key}\nsecretKey: {user.secret_key}\n"
            self._file.write_text(text)

    def root(self, command: str, *words: object) -> str:
        """Run a command as the super user; returns its output."""
        self.become(ROOT)
        printed = self.admin.run(command, "-b", self.broker, *words)
        assert "Exception" not in printed, printed
        return printed

    def rows(self, command: str, *words: object) -> list[list[str]]:
        """Run a command that prints a table as the super user; returns its rows."""
        self.become(ROOT)
        return self.admin.rows(command, "-b", self.broker, *words)

    def send(self, user: Credentials | None, topic: str) -> str:
        """Send a message with the Java client of a user; returns the command's output."""
        self.become(user)
        return self.admin.run("sendMessage", "-t", topic, "-p", "hello", "-b", "broker-a", "-i", 0)


@pytest.fixture(scope="module")
def session(built: None, work: Path, kind: Kind) -> Iterator[Session]:
    """A broker with a super user, and mqadmin."""
    folder = work / "users"
    group = groups.start(kind, Ports.free(), folder, folder / "store", SETTINGS)
    try:
        found = Session(group, folder / "mqadmin")
        try:
            for topic in (TOPIC, OTHER):
                found.root("updateTopic", "-t", topic, "-r", 1, "-w", 1)
            yield found
            assert all(one.running for one in group.members)
        finally:
            found.admin.close()
    finally:
        group.stop()


def test_users(session: Session) -> None:
    session.root("createUser", "-u", "bob", "-p", "secret", "-t", "Normal")
    session.become(ROOT)
    again = session.admin.run("createUser", "-b", session.broker, "-u", "bob", "-p", "x")
    assert "The user is existed" in again
    assert [row[0] for row in session.rows("listUser", "-f", "bo")] == ["bob"]
    session.root("updateUser", "-u", "bob", "-s", "disable")
    row = session.rows("getUser", "-u", "bob")[0]
    assert (row[0], row[-2:]) == ("bob", ["Normal", "disable"])
    assert "bob" not in session.root("getUser", "-u", "nobody")
    session.root("deleteUser", "-u", "bob")
    assert "bob" not in session.root("listUser")


def test_policies(session: Session) -> None:
    session.root("createUser", "-u", "carl", "-p", "secret", "-t", "Normal")
    subject = ("-s", "User:carl")
    rule = ("-r", "Topic:a,Group:b*", "-a", "Pub,Sub", "-d", "Allow", "-i", "10.0.0.0/8")
    session.root("createAcl", *subject, *rule)
    rows = session.rows("getAcl", *subject)
    assert sorted(row[2] for row in rows) == ["Group:b*", "Topic:a"]
    session.root("updateAcl", *subject, "-r", "Topic:a", "-a", "All", "-d", "Deny")
    rows = session.rows("listAcl", *subject, "-r", "Topic")
    assert [(row[2], row[-1]) for row in rows] == [("Topic:a", "Deny")]
    session.root("deleteAcl", *subject, "-r", "Topic:a")
    assert [row[2] for row in session.rows("getAcl", *subject)] == ["Group:b*"]
    session.root("deleteAcl", *subject)
    session.root("deleteUser", "-u", "carl")


def test_a_java_client(session: Session) -> None:
    session.root("createUser", "-u", "alice", "-p", ALICE.secret_key, "-t", "Normal")
    session.root(
        "createAcl", "-s", "User:alice", "-r", f"Topic:{TOPIC}", "-a", "Pub", "-d", "Allow"
    )
    assert "SEND_OK" in session.send(ALICE, TOPIC)
    for user, topic in (
        (ALICE, OTHER),
        (Credentials("alice", "wrong"), TOPIC),
        (Credentials("mallory", "al1ce"), TOPIC),
        (None, TOPIC),
    ):
        printed = session.send(user, topic)
        assert "SEND_OK" not in printed and DENIED in printed, printed
    session.root("updateUser", "-u", "alice", "-s", "disable")
    assert "User:alice is disabled." in session.send(ALICE, TOPIC)
    session.root("updateUser", "-u", "alice", "-s", "enable")
    session.root("updateUser", "-u", "alice", "-p", "changed")
    assert DENIED in session.send(ALICE, TOPIC)
    assert "SEND_OK" in session.send(Credentials("alice", "changed"), TOPIC)
    deny = ("-r", f"Topic:{TOPIC}", "-a", "Pub", "-d", "Deny")
    session.root("updateAcl", "-s", "User:alice", *deny)
    assert "the decision is deny" in session.send(Credentials("alice", "changed"), TOPIC)
    session.root("deleteUser", "-u", "alice")


def test_administration_needs_rights(session: Session, kind: Kind) -> None:
    """RocketMQ shows its status to every user."""
    session.root("createUser", "-u", "dora", "-p", "secret", "-t", "Normal")
    dora = Credentials("dora", "secret")
    for user in (dora, None, Credentials("root", "wrong")):
        session.become(user)
        for command in (
            ("brokerStatus",),
            ("listUser",),
            ("createUser", "-u", "eve", "-p", "x"),
            ("createAcl", "-s", "User:dora", "-r", "*", "-a", "All", "-d", "Allow"),
            ("updateTopic", "-t", "made", "-r", 1, "-w", 1),
        ):
            printed = session.admin.run(command[0], "-b", session.broker, *command[1:])
            is_open = kind.name == "rocketmq" and user is dora and command == ("brokerStatus",)
            assert (DENIED in printed) is not is_open, (user, command, printed)
    session.root("deleteUser", "-u", "dora")


def test_the_configuration_has_no_credentials(session: Session, kind: Kind) -> None:
    session.become(ROOT)
    printed = session.admin.run("getBrokerConfig", "-b", session.broker)
    assert "authenticationEnabled" in printed
    assert (ROOT.secret_key in printed) is (kind.name == "rocketmq")


def test_copies_reach_another_cluster(session: Session) -> None:
    """copyAcl and copyUser with one broker as source and target change nothing."""
    session.root("createUser", "-u", "fred", "-p", "secret", "-t", "Normal")
    session.root("createAcl", "-s", "User:fred", "-r", "Topic:a", "-a", "Pub", "-d", "Allow")
    session.become(ROOT)
    both = ("-f", session.broker, "-t", session.broker)
    for command in (("copyUser", *both, "-u", "fred"), ("copyAcl", *both, "-s", "User:fred")):
        printed = session.admin.run(*command)
        assert "Exception" not in printed, printed
    session.root("deleteUser", "-u", "fred")


def test_commands_for_a_cluster(session: Session) -> None:
    session.become(ROOT)
    cluster = ("-c", CLUSTER, "-u", "gina", "-p", "secret", "-t", "Normal")
    assert "Exception" not in session.admin.run("createUser", *cluster)
    assert [row[0] for row in session.rows("listUser", "-f", "gina")] == ["gina"]
    session.root("deleteUser", "-u", "gina")

"""The table of users and policies: durable, private, bounded."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SteeredDisk

from turbopump.broker.auth import table as module
from turbopump.broker.auth.policies import PolicyType, Resource, read_policies
from turbopump.broker.auth.sealing import Sealer
from turbopump.broker.auth.table import AuthTable, FullAuthTable
from turbopump.broker.auth.users import User, UserType
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.java_properties import ConfigError

KEY = Sealer(bytes(32))


def policies(resource: str = "Topic:T", decision: str = "Allow") -> Any:
    one = {"resource": resource, "actions": ["Pub"], "decision": decision}
    return read_policies([{"entries": [one]}])


class Folder:
    """A folder in which tables are opened one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "config" / "auth.json"

    def open(self, sealer: Sealer | None = None) -> AuthTable:
        files = ConfigFiles(RealFiles(), str(self.path / "config"))
        self.saver = TableSaver(files, SteeredDisk())
        table = AuthTable(self.saver, sealer)
        table.load()
        return table


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_users_and_policies_survive_a_restart(folder: Folder) -> None:
    table = folder.open()
    table.put_user(User("root", "one", UserType.SUPER), 5)
    table.put_user(User("a:b \u00fc", "two"), 6)
    table.merge_acl("a:b \u00fc", policies(), 7)
    again = folder.open()
    assert again.user("root") == User("root", "one", UserType.SUPER)
    assert again.acl("a:b \u00fc") == table.acl("a:b \u00fc")
    assert again.user_names() == ["a:b \u00fc", "root"] and again.acl_names() == ["a:b \u00fc"]
    assert again.data_version.counter == 3
    again.remove_user("a:b \u00fc", 8)
    again.remove_user("nobody", 8)
    last = folder.open()
    assert last.user("a:b \u00fc") is None and last.acl("a:b \u00fc") is None
    assert last.data_version.counter == 4


def test_only_the_owner_reads_the_file_and_its_backup(folder: Folder) -> None:
    before = os.umask(0)
    try:
        table = folder.open()
        for name in ("a", "b"):
            table.put_user(User(name, "s"), 1)
    finally:
        os.umask(before)
    for path in (folder.file, folder.file.with_name("auth.json.bak")):
        assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_owner_reads_the_file_behind_a_link(folder: Folder) -> None:
    target = folder.path / "elsewhere.json"
    target.write_text("{}")
    target.chmod(0o644)
    folder.file.parent.mkdir()
    folder.file.symlink_to(target)
    before = os.umask(0)
    try:
        folder.open().put_user(User("a", "s"), 1)
        folder.open().put_user(User("b", "s"), 1)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o600
    assert folder.file.with_name("auth.json.bak").stat().st_mode & 0o777 == 0o600


def test_secrets_are_encrypted_with_a_key(folder: Folder) -> None:
    plain = folder.open()
    plain.put_user(User("a", "hidden"), 1)
    assert "hidden" in folder.file.read_text()
    assert folder.open(KEY).user("a") == User("a", "hidden")
    assert "hidden" not in folder.file.read_text()
    assert folder.open(KEY).user("a") == User("a", "hidden")
    for other in (None, Sealer(b"1" * 32)):
        with pytest.raises(ConfigError) as raised:
            folder.open(other)
        assert "hidden" not in str(raised.value)


def test_a_sealed_secret_is_for_the_same_user_and_key(folder: Folder) -> None:
    table = folder.open(KEY)
    sealed = table.seal(User("a", "hidden"))
    assert table.unseal("a", sealed) == "hidden"
    assert table.unseal("b", sealed) == sealed
    assert table.unseal("a", "plain") == "plain"
    assert folder.open().seal(User("a", "hidden")) == ""


@pytest.mark.parametrize(
    "content",
    [
        {"users": {"a": {"password": ""}}},
        {"users": {"": {"password": "s"}}},
        {"users": {"a": {"password": "s", "userStatus": "x"}}},
        {"users": []},
        {"acls": {"User:a": {"policies": []}}},
        {"acls": {"User:a": {"policies": [{"entries": [{"resource": "?"}]}]}}},
    ],
)
def test_a_damaged_table_is_an_error(folder: Folder, content: Any) -> None:
    folder.file.parent.mkdir()
    folder.file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"auth.json is damaged"):
        folder.open()


def test_policies_are_merged_and_removed(folder: Folder) -> None:
    table = folder.open()
    table.put_user(User("a", "s"), 1)
    table.merge_acl("a", policies(), 1)
    table.merge_acl("a", policies("Group:*"), 1)
    table.remove_entry("a", PolicyType.CUSTOM, Resource.parse("Topic:T"), 1)
    with pytest.raises(KeyError):
        table.remove_entry("a", PolicyType.CUSTOM, Resource.parse("Topic:T"), 1)
    table.remove_entry("a", PolicyType.CUSTOM, Resource.parse("Group:*"), 1)
    assert table.acl("a") is None
    with pytest.raises(KeyError):
        table.remove_entry("a", PolicyType.CUSTOM, Resource.parse("Group:*"), 1)
    table.merge_acl("a", policies(), 1)
    table.remove_acl("a", 1)
    assert folder.open().acl("a") is None


def test_a_fresh_subject_may_have_both_decisions(folder: Folder) -> None:
    table = folder.open()
    kind = PolicyType.CUSTOM
    both = {kind: policies()[kind] + policies(decision="Deny")[kind]}
    table.merge_acl("a", both, 1)
    assert len(folder.open().acl("a").policies[kind]) == 2  # type: ignore[union-attr]


def test_the_table_is_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    table = folder.open()
    monkeypatch.setattr(module, "TABLE_MAX", 1_000)
    with pytest.raises(FullAuthTable):
        for number in range(100):
            table.put_user(User(f"u{number}", "s"), 1)
    count = len(table.user_names())
    assert 3 < count < 15
    for name in table.user_names():
        table.put_user(User(name, "t"), 1)
        table.remove_user(name, 1)
    for number in range(count):
        table.put_user(User(f"u{number}", "s"), 1)
    monkeypatch.setattr(module, "ACL_MAX", 150)
    with pytest.raises(FullAuthTable):
        table.merge_acl("u0", policies("Topic:" + "x" * 100), 1)
    assert table.acl("u0") is None


def test_changes_are_reported(folder: Folder) -> None:
    seen: list[int] = []
    folder.open()
    table = AuthTable(folder.saver, on_change=lambda: seen.append(table.data_version.counter))
    table.put_user(User("a", "s"), 1)
    table.bump_version(2)
    assert seen == [1, 2]

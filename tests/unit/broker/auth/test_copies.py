"""Copies of users and policies: complete, and readable with the same inner secret alone."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.auth.test_table import Folder, policies

from turbopump.broker.auth.copies import (
    copy_in_steps,
    copy_sealer,
    read_copy,
    version_text,
)
from turbopump.broker.auth.table import AuthTable
from turbopump.broker.auth.users import User, UserStatus, UserType
from turbopump.net.wire.bodies import BadBody, run_to_result


@pytest.fixture
def table(tmp_path: Path) -> AuthTable:
    made = Folder(tmp_path).open()
    made.put_user(User("root", "one", UserType.SUPER), 1)
    made.put_user(User("a:b \u00fc", "two", status=UserStatus.DISABLED), 2)
    made.merge_acl("a:b \u00fc", policies(), 3)
    return made


def test_a_copy_is_complete(table: AuthTable, tmp_path: Path) -> None:
    members = run_to_result(copy_in_steps(table, copy_sealer("s")))
    copy = read_copy(copy_sealer("s"), members)
    other = Folder(tmp_path / "other").open()
    other.put_user(User("old", "s"), 1)
    other.adopt(copy.users, copy.acls, copy.version)
    assert other.user_names() == table.user_names() and other.acl_names() == table.acl_names()
    for name in table.user_names():
        assert other.user(name) == table.user(name) and other.acl(name) == table.acl(name)
    assert version_text(other.data_version) == version_text(table.data_version)
    again = Folder(tmp_path / "other").open()
    assert again.user("root") == table.user("root") and again.user("old") is None


def test_a_copy_needs_the_same_secret(table: AuthTable) -> None:
    members = run_to_result(copy_in_steps(table, copy_sealer("s")))
    for damaged in (members, {"users": {"a": {"sealed": "gcm1:x"}}}, {"users": {"a": {}}}):
        with pytest.raises(BadBody):
            read_copy(copy_sealer("t"), damaged)


def test_a_table_that_changes_meanwhile_is_copied_again(table: AuthTable) -> None:
    for number in range(250):
        table.put_user(User(f"u{number}", "s"), 4)
    steps, members = copy_in_steps(table, copy_sealer("s")), dict[str, Any]()
    next(steps)
    table.remove_user("a:b \u00fc", 5)
    members = run_to_result(steps)
    assert "a:b \u00fc" not in members["users"] and len(members["users"]) == 251
    assert not members["acls"]

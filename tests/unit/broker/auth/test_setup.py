"""The users that a start creates, and the key file."""

from pathlib import Path

import pytest
from tests.unit.broker.conftest import SteeredDisk

from turbopump.broker.auth.setup import make_users
from turbopump.broker.auth.table import AuthTable
from turbopump.broker.auth.users import User, UserType
from turbopump.broker.config.auth_config import AuthConfig, UserCredentials
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.java_properties import ConfigError


def make(folder: Path, config: AuthConfig) -> AuthTable:
    files = ConfigFiles(RealFiles(), f"{folder}/config")
    return make_users(config, RealFiles(), TableSaver(files, SteeredDisk()), 1)


def test_first_users_are_created_once(tmp_path: Path) -> None:
    config = AuthConfig(
        init_user=UserCredentials("root", "a"), inner_credentials=UserCredentials("inner", "b")
    )
    users = make(tmp_path, config)
    assert users.user("root") == User("root", "a", UserType.SUPER)
    assert users.user("inner") == User("inner", "b", UserType.SUPER)
    users.put_user(User("root", "changed"), 2)
    again = make(tmp_path, config)
    assert again.user("root") == User("root", "changed")


def test_no_users_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, AuthConfig())
    assert "no users exist" in caplog.text


def test_bad_users_and_key_files_are_errors(tmp_path: Path) -> None:
    for config, part in (
        (AuthConfig(init_user=UserCredentials("a\nb", "hidden")), "initAuthenticationUser"),
        (AuthConfig(inner_credentials=UserCredentials("a", "hidden" * 300)), "innerClient"),
        (AuthConfig(secrets_key_file=f"{tmp_path}/missing"), "missing"),
        (AuthConfig(secrets_key_file="/dev/null"), "has no key"),
    ):
        with pytest.raises(ConfigError) as raised:
            make(tmp_path, config)
        assert part in str(raised.value) and "hidden" not in str(raised.value)

"""Users: their limits, and secrets that no text shows."""

import pytest

from turbopump.broker.auth.users import (
    BadUser,
    User,
    UserStatus,
    UserType,
    changed_user,
    check_name,
    new_user,
)


def test_a_new_user_has_rocketmqs_defaults() -> None:
    user = new_user("alice", {"password": "s", "userType": "nonsense"})
    assert user == User("alice", "s", UserType.NORMAL, UserStatus.ENABLED)
    user = new_user("root", {"password": "s", "userType": "super", "userStatus": "Disable"})
    assert user.is_super and not user.is_enabled


def test_a_change_keeps_members_that_are_not_given() -> None:
    user = new_user("root", {"password": "s", "userType": "Super"})
    after = changed_user(user, {"password": " ", "userStatus": "disable"})
    assert after == User("root", "s", UserType.SUPER, UserStatus.DISABLED)
    with pytest.raises(BadUser):
        changed_user(user, {"userStatus": "disabled"})


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 256])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(BadUser):
        check_name(name)


@pytest.mark.parametrize("secret", ["", "  ", "x" * 1025])
def test_secrets_that_are_refused(secret: str) -> None:
    with pytest.raises(BadUser):
        new_user("a", {"password": secret})


def test_no_text_has_the_secret() -> None:
    user = new_user("a:b \u00fc", {"password": "hidden"})
    assert "hidden" not in repr(user) and "hidden" not in str(user.to_json())

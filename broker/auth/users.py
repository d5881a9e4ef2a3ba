"""Users: name, secret, type and status (RocketMQ's ACL 2.0).

Owns their texts and limits. It must never show a secret: neither in a text nor in JSON for a peer.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from turbopump.broker.auth.policies import NAME_MAX
from turbopump.net.wire.bodies import read_text

SECRET_MAX: Final = 1_024
"""Maximum characters of a secret."""


class BadUser(ValueError):
    """A user that is refused; the read_text is RocketMQ's where it has one."""


class UserType(Enum):
    """Type of a user; the value is its name in texts. SUPER users may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Status of a user; the value is its name in texts. A DISABLED user is refused."""

    ENABLED = "enable"
    DISABLED = "disable"


_TYPES: Final = {one.value.lower(): one for one in UserType}
_STATUSES: Final = {one.value.lower(): one for one in UserStatus}


@dataclass(frozen=True, slots=True)
class User:
    """A user. `secret` signs its requests."""

    name: str
    secret: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLED

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether the user's requests are accepted."""
        return self.status is UserStatus.ENABLED

    def to_json(self) -> dict[str, Any]:
        """Convert to RocketMQ's UserInfo, without the password."""
        return {
            "userStatus": self.status.value,
            "userType": self.type.value,
            "username": self.name,
        }


def check_name(name: str) -> str:
    """Return a valid user name itself. Raises BadUser."""
    if not name.strip():
        raise BadUser("username can not be blank")
    if len(name) > NAME_MAX or not name.isprintable():
        raise BadUser(f"username has over {NAME_MAX} characters or unprintable ones")
    return name


def check_secret(secret: str) -> str:
    """Return a valid secret itself. Raises BadUser."""
    if not secret.strip():
        raise BadUser("password can not be blank")
    if len(secret) > SECRET_MAX:
        raise BadUser(f"password has over {SECRET_MAX} characters")
    return secret


def new_user(name: str, members: dict[str, Any]) -> User:
    """Make a user of RocketMQ's UserInfo; an unknown or missing type is Normal, a missing status
    enable. Raises BadUser, BadBody."""
    user = User(check_name(name), check_secret(read_text(members, "password")))
    return changed_user(user, members)


def changed_user(user: User, members: dict[str, Any]) -> User:
    """Return `user` with the members of a UserInfo that are given; a blank password changes
    nothing. Raises BadUser, BadBody."""
    secret = read_text(members, "password")
    if secret.strip():
        user = replace(user, secret=check_secret(secret))
    kind = read_text(members, "userType")
    if kind:
        user = replace(user, type=_TYPES.get(kind.lower(), UserType.NORMAL))
    status = read_text(members, "userStatus")
    if status:
        found = _STATUSES.get(status.lower())
        if found is None:
            raise BadUser("userStatus is neither enable nor disable")
        user = replace(user, status=found)
    return user

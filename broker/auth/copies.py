"""Copies of users and policies for the replicas of a group.

Owns the answer that a master gives a replica, and its reading. It must never let a secret out in
clear text: it is encrypted with a key that is derived from the secret of the inner credentials,
which all brokers of a group share.

A copy is JSON: `dataVersion`, `users` by name with `userType`, `userStatus` and `sealed`, and
`acls` by name with `policies`.
"""

import hmac
from dataclasses import dataclass
from typing import Any, Final

from turbopump.broker.auth.policies import Acl, BadPolicy, read_policies
from turbopump.broker.auth.sealing import Sealer, SealError
from turbopump.broker.auth.table import AuthTable
from turbopump.broker.auth.users import BadUser, User, new_user
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody, Steps, as_object, read_table, read_text
from turbopump.net.wire.topics import DataVersion

COPY: Final = "copyOfVersion"
"""Field by which a replica's request 3005 asks for a copy: the version that it has, as
`version_text` writes it. RocketMQ ignores the field, and answers a list."""
_PURPOSE: Final = b"turbopump: users for the replicas of a group"


def copy_sealer(secret: str) -> Sealer:
    """Return the encryption of copies between brokers with the same inner secret. Raises
    ConfigError without the package cryptography."""
    return Sealer(hmac.digest(secret.encode(), _PURPOSE, "sha256"))


def version_text(version: DataVersion) -> str:
    """Return a version as one text, equal for equal versions."""
    return f"{version.state_version}:{version.counter}:{version.timestamp}"


def copy_in_steps(users: AuthTable, sealer: Sealer) -> Steps[dict[str, Any]]:
    """Return the copy of the table as it is at the end, in steps: a table that changes between two
    steps is copied again."""
    while True:
        version, rows, acls = users.data_version, dict[str, Any](), dict[str, Any]()
        for number, name in enumerate(users.user_names(), 1):
            user, acl = users.user(name), users.acl(name)
            if user is not None:
                rows[name] = {**user.to_json(), "sealed": sealer.seal(name, user.secret)}
            if acl is not None:
                acls[name] = {"policies": acl.to_json()}
            if number % bodies.READ == 0:
                yield
        if users.data_version == version:
            return {"acls": acls, "dataVersion": version.to_json(), "users": rows}


@dataclass(frozen=True, slots=True)
class AuthCopy:
    """Users and policies of a master, with their version."""

    version: DataVersion
    users: dict[str, User]
    acls: dict[str, Acl]


def read_copy(sealer: Sealer, members: dict[str, Any]) -> AuthCopy:
    """Read the JSON of a copy; any thread may. Raises BadBody, also for another inner secret."""
    try:
        users = {
            name: _read_user(sealer, name, row)
            for name, row in read_table(members, "users", as_object).items()
        }
        acls = {
            name: Acl(read_policies(row.get("policies")))
            for name, row in read_table(members, "acls", as_object).items()
        }
    except (BadUser, BadPolicy, SealError) as error:
        raise BadBody(str(error)) from None
    return AuthCopy(DataVersion.from_json(members.get("dataVersion")), users, acls)


def _read_user(sealer: Sealer, name: str, row: dict[str, Any]) -> User:
    """Read a user of a copy. Raises BadUser, BadBody, SealError."""
    secret = sealer.open(name, read_text(row, "sealed"))
    return new_user(name, {**row, "password": secret})

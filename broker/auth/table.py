"""The table of users and policies: auth.json.

Owns the users, their policies, the version of both and the file. It must never answer a request,
nor let a secret into a text other than its file and the sealed copy for replicas.

A change is in force at once, and its answer leaves when the file is durable (table_saver.py). The
file has mode 0600; with a key its secrets are encrypted (sealing.py).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from turbopump.broker.auth.policies import (
    USER_PREFIX,
    Acl,
    BadPolicy,
    Policies,
    PolicyType,
    Resource,
    read_policies,
)
from turbopump.broker.auth.sealing import PREFIX, Sealer, SealError
from turbopump.broker.auth.users import BadUser, User, check_name, check_secret, new_user
from turbopump.broker.tables.data_versions import VersionRules
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import Content, JsonTable, TableSnapshot, text_of
from turbopump.net.wire.bodies import BadBody, as_object, read_table, read_text
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.topics import DataVersion

logger = logging.getLogger(__name__)

FILE_NAME: Final = "auth.json"
"""Name of the table's file in the config folder."""
TABLE_MAX: Final = 4 << 20
"""Maximum bytes of all users and policies as JSON: some 10,000 users with policies."""
ACL_MAX: Final = 64 << 10
"""Maximum bytes of a user's policies as JSON, some 500 entries: a decision looks at each entry that
has no literal resource."""
_SEALED: Final = "sealed"
_DEPTH: Final = 2


class FullAuthTable(Exception):
    """A change is refused: the table, or a user's policies, would have too many bytes."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A user or the policies of a user, with the text for the file."""

    value: Any
    text: bytes

    def row(self) -> bytes:
        """The row's text in the file."""
        return self.text


class AuthTable:
    """Users and their policies. Loop thread only."""

    def __init__(
        self,
        saver: TableSaver,
        sealer: Sealer | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`sealer` encrypts the secrets in the file; None: they are in it as they are. `on_change`
        is called after each change, which may take rights away."""
        self.versions = VersionRules()
        self._saver, self._sealer, self._on_change = saver, sealer, on_change
        self._users: JsonTable[_Row] = JsonTable()
        self._acls: JsonTable[_Row] = JsonTable()
        self._size = 0
        self._version = DataVersion()
        saver.keep_private(FILE_NAME)

    def load(self) -> None:
        """Read auth.json if it exists; a secret that is not encrypted although there is a key will
        be, at once. Raises ConfigError for malformed content or a missing key, StoreError if the
        file cannot be read. No text of an error has a secret."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is None:
            return
        try:
            members = as_object(saved)
            self._version = DataVersion.from_json(members.get("dataVersion") or {})
            for name, row in read_table(members, "users", as_object).items():
                self._put_user(self._read_user(name, row))
            for subject, row in read_table(members, "acls", as_object).items():
                name = subject.removeprefix(USER_PREFIX)
                self._put_acl(name, Acl(read_policies(row.get("policies"))))
        except (BadBody, BadUser, BadPolicy, SealError, FullAuthTable) as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        rows = as_object(saved.get("users") or {}).values()
        if self._sealer is not None and any(_SEALED not in as_object(row) for row in rows):
            self._saver.save_changed(FILE_NAME, self._content)

    @property
    def data_version(self) -> DataVersion:
        """The version of the table's content."""
        return self._version

    def bump_version(self, now_ms: int) -> None:
        """Give the unchanged content a newer version, of the term in `versions`; it is saved
        soon."""
        self._changed(now_ms)

    def user(self, name: str) -> User | None:
        """The user of that name; None if it does not exist."""
        row = self._users.get(name)
        return None if row is None else row.value

    def acl(self, name: str) -> Acl | None:
        """The policies of a user; None without policies."""
        row = self._acls.get(name)
        return None if row is None else row.value

    def user_names(self) -> list[str]:
        """The names of all users, sorted."""
        return self._users.names()

    def acl_names(self) -> list[str]:
        """The names of all users with policies, sorted."""
        return self._acls.names()

    def put_user(self, user: User, now_ms: int) -> None:
        """Add or replace a user. Raises FullAuthTable; then nothing has changed."""
        self._put_user(user)
        self._changed(now_ms)

    def remove_user(self, name: str, now_ms: int) -> None:
        """Remove a user and its policies, if it exists."""
        if name in self._users:
            self._forget(self._users, name)
            if name in self._acls:
                self._forget(self._acls, name)
            self._changed(now_ms)

    def merge_acl(self, name: str, changes: Policies, now_ms: int) -> None:
        """Merge the entries into the policies of a user, see `Acl.merged`. Raises FullAuthTable;
        then nothing has changed."""
        before = self.acl(name)
        self._put_acl(name, Acl(dict(changes)) if before is None else before.merged(changes))
        self._changed(now_ms)

    def remove_acl(self, name: str, now_ms: int) -> None:
        """Remove all policies of a user, which must have some."""
        self._forget(self._acls, name)
        self._changed(now_ms)

    def remove_entry(self, name: str, kind: PolicyType, resource: Resource, now_ms: int) -> None:
        """Remove the entry of a resource from a user's policies. Raises KeyError if there is no
        such entry, or no policy."""
        row = self._acls.get(name)
        if row is None:
            raise KeyError(name)
        left = row.value.without(kind, resource)
        if left is None:
            self._forget(self._acls, name)
        else:
            self._put_acl(name, left)
        self._changed(now_ms)

    def adopt(
        self, users: Mapping[str, User], acls: Mapping[str, Acl], version: DataVersion
    ) -> None:
        """Replace the whole table by a master's, with its version; it is saved soon. Raises
        FullAuthTable; then nothing has changed."""
        own, policies = self._users.rows(), self._acls.rows()
        rows = {
            name: own[name] if self.user(name) == user else self._user_row(user)
            for name, user in users.items()
        }
        acl_rows = {
            name: policies[name] if self.acl(name) == acl else _acl_row(name, acl)
            for name, acl in acls.items()
        }
        size = sum(len(row.text) for row in (*rows.values(), *acl_rows.values()))
        if size > TABLE_MAX:
            raise FullAuthTable(f"users and policies need more than {TABLE_MAX} bytes")
        self._size, self._version = size, version
        self._users.replace(rows)
        self._acls.replace(acl_rows)
        self._saver.save_changed(FILE_NAME, self._content)
        self._on_change()

    def seal(self, user: User) -> str:
        """The encrypted secret of a user, for a broker with the same key; "" without a key."""
        return "" if self._sealer is None else self._sealer.seal(user.name, user.secret)

    def unseal(self, name: str, secret: str) -> str:
        """Return the secret in a text that `seal` of a broker with the same key returned; another
        text unchanged."""
        if self._sealer is None or not secret.startswith(PREFIX):
            return secret
        try:
            return self._sealer.open(name, secret)
        except SealError:
            return secret

    def _put_user(self, user: User) -> None:
        """Put a user's row. Raises FullAuthTable."""
        self._put(self._users, user.name, self._user_row(user))

    def _user_row(self, user: User) -> _Row:
        """Make the row of a user, its secret encrypted if there is a key."""
        members: dict[str, Any] = user.to_json()
        del members["username"]
        if self._sealer is None:
            members["password"] = user.secret
        else:
            members[_SEALED] = self._sealer.seal(user.name, user.secret)
        return _Row(user, fastjson.encode_member(user.name, members, _DEPTH))

    def _put_acl(self, name: str, acl: Acl) -> None:
        """Put the row of a user's policies. Raises FullAuthTable."""
        row = _acl_row(name, acl)
        if len(row.text) > ACL_MAX:
            raise FullAuthTable(f"the policies of a user need more than {ACL_MAX} bytes")
        self._put(self._acls, name, row)

    def _put(self, rows: JsonTable[_Row], name: str, row: _Row) -> None:
        """Put a row, and count its bytes. Raises FullAuthTable."""
        before = rows.get(name)
        size = self._size + len(row.text) - (0 if before is None else len(before.text))
        if size > TABLE_MAX:
            raise FullAuthTable(f"users and policies need more than {TABLE_MAX} bytes")
        self._size = size
        rows.put(name, row)

    def _forget(self, rows: JsonTable[_Row], name: str) -> None:
        """Remove a row."""
        found = rows.get(name)
        assert found is not None, "the caller has checked the name"
        self._size -= len(found.text)
        rows.remove(name)

    def _read_user(self, name: str, row: dict[str, Any]) -> User:
        """Read a user's row. Raises BadUser, BadBody, SealError."""
        sealed = read_text(row, _SEALED)
        if not sealed:
            return new_user(name, row)
        if self._sealer is None:
            raise SealError("its secrets are encrypted, and authSecretsKeyFile is not set")
        secret = self._sealer.open(check_name(name), sealed)
        return new_user(name, {**row, "password": check_secret(secret)})

    def _changed(self, now_ms: int) -> None:
        """Give the table its next version, have it saved, and report the change."""
        self._version = self.versions.next_version(self._version, now_ms)
        self._saver.save_changed(FILE_NAME, self._content)
        self._on_change()

    def _content(self) -> Content:
        """The whole content of the file, as the table is now."""
        members = {
            "acls": _snapshot(self._acls),
            "dataVersion": self._version.to_json(),
            "users": _snapshot(self._users),
        }
        return lambda: text_of(members)


def _acl_row(name: str, acl: Acl) -> _Row:
    """Make the row of a user's policies."""
    return _Row(
        acl, fastjson.encode_member(USER_PREFIX + name, {"policies": acl.to_json()}, _DEPTH)
    )


def _snapshot(rows: JsonTable[_Row]) -> TableSnapshot:
    """The rows as they are now."""
    return TableSnapshot(rows.names(), rows.rows())

"""The name and the secret with which a client signs its requests.

Owns Credentials and the places that they are read from: a file in the form of RocketMQ's tools.yml,
and environment variables. It must never log or show a secret.
"""

import json
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import sign_request

logger = logging.getLogger(__name__)

ACCESS_KEY_VARIABLE: Final = "TURBOPUMP_ACCESS_KEY"
"""Environment variable with the name of the user."""
SECRET_KEY_VARIABLE: Final = "TURBOPUMP_SECRET_KEY"
"""Environment variable with the user's secret."""
SECURITY_TOKEN_VARIABLE: Final = "TURBOPUMP_SECURITY_TOKEN"
"""Environment variable with a token, which few servers need."""
FILE_VARIABLE: Final = "TURBOPUMP_CREDENTIALS"
"""Environment variable with the path of a credentials file; TURBOPUMP_ACCESS_KEY and
TURBOPUMP_SECRET_KEY together overrule it."""
FILE_MAX: Final = 64 << 10
"""Maximum bytes of a credentials file."""
_MEMBERS: Final = ("accessKey", "secretKey", "securityToken")
_QUOTED: Final = re.compile(
    r"""(?:'(?P<single>(?:[^']|'')*)'|(?P<double>"(?:[^"\\]|\\.)*"))\s*(?:#.*)?"""
)
_OTHERS_MAY_READ: Final = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True)
class Credentials:
    """The name of a user and its secret, with which clients sign their requests.

    The secret is never sent, and `repr` shows neither it nor the token.

    Args:
        access_key: the user's name (RocketMQ: AccessKey).
        secret_key: the user's secret, the key of the signatures.
        security_token: sent and signed with each request; empty for none.

    Raises InvalidArgument for a value that is no text, and for an empty name or secret.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            if not isinstance(getattr(self, name), str):  # without the value: it may be a secret
                raise InvalidArgument(f"credentials: {name} is no text")
        if not self.access_key.strip():
            raise InvalidArgument("credentials: the access key is empty")
        if not self.secret_key:
            raise InvalidArgument(f"credentials of {self.access_key}: the secret key is empty")

    @classmethod
    def from_file(cls, path: str | Path) -> "Credentials":
        """Read a file with the lines `accessKey: NAME`, `secretKey: SECRET` and optionally
        `securityToken: TOKEN`, such as RocketMQ's conf/tools.yml, or a JSON object with these
        members. Other lines are ignored; values are on one line.

        Logs one warning for each file that users besides its owner may read. Raises OSError, and
        InvalidArgument for a file with other contents.
        """
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_MAX + 1)
        if stat.S_ISREG(mode) and mode & _OTHERS_MAY_READ:
            _warn_of_readers(str(path))
        if len(content) > FILE_MAX:
            raise InvalidArgument(f"{path}: a credentials file has at most {FILE_MAX} bytes")
        try:
            return cls.from_text(content.decode())
        except UnicodeDecodeError:
            raise InvalidArgument(f"{path}: this is not UTF-8 text") from None
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None

    @classmethod
    def from_text(cls, text: str) -> "Credentials":
        """Parse the contents of a credentials file; see `from_file`. Raises InvalidArgument."""
        found = _json_members(text) if text.lstrip().startswith("{") else _yaml_members(text)
        missing = [name for name in _MEMBERS[:2] if not found.get(name)]
        if missing:
            raise InvalidArgument(f"credentials: {' and '.join(missing)} missing")
        return cls(*(found.get(name, "") for name in _MEMBERS))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Credentials | None":
        """Return the credentials that the environment variables (default: of this process) name:
        TURBOPUMP_ACCESS_KEY and TURBOPUMP_SECRET_KEY, optionally TURBOPUMP_SECURITY_TOKEN, else the
        file TURBOPUMP_CREDENTIALS; None without them.

        Raises InvalidArgument if only one of the two is set and there is no file, or for a file
        that cannot be used.
        """
        given = os.environ if environ is None else environ
        name, secret = given.get(ACCESS_KEY_VARIABLE, ""), given.get(SECRET_KEY_VARIABLE, "")
        if name and secret:
            return cls(name, secret, given.get(SECURITY_TOKEN_VARIABLE, ""))
        path = given.get(FILE_VARIABLE, "")
        if path:
            try:
                return cls.from_file(path)
            except OSError as error:
                reason = error.strerror or str(error)
                raise InvalidArgument(f"{FILE_VARIABLE}: {path}: {reason}") from None
        if name or secret:
            there, absent = ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
            if secret:
                there, absent = absent, there
            raise InvalidArgument(f"{there} is set in the environment, but {absent} is not")
        return None


def effective_credentials(given: Credentials | None) -> Credentials | None:
    """Return the credentials of a client's options or, if they are None, of the environment; None
    without either. Raises InvalidArgument."""
    if given is None:
        return Credentials.from_environment()
    check_type(given, Credentials, "credentials", "a turbopump.Credentials")
    return given


def signer_of(credentials: Credentials | None) -> Callable[[Command], None] | None:
    """Return the function that signs a remoting request, whose other fields and body must be
    complete: it sets the fields AccessKey, SecurityToken and Signature. None without
    credentials."""
    if credentials is None:
        return None
    user, secret, token = (
        credentials.access_key,
        credentials.secret_key,
        credentials.security_token,
    )
    return lambda request: sign_request(request, user, secret, token)


@cache
def _warn_of_readers(path: str) -> None:
    """Log that users besides the owner may read the file; once for each path."""
    logger.warning("%s has a secret, and other users may read it: chmod 600 %s", path, path)


def _json_members(text: str) -> dict[str, str]:
    """Read the members of a JSON object that are texts or whole numbers. Raises
    InvalidArgument."""
    try:
        found = json.loads(text)
    except ValueError:
        raise InvalidArgument("credentials: this is no JSON object") from None
    return {name: str(value) for name, value in found.items() if type(value) in (str, int)}


def _yaml_members(text: str) -> dict[str, str]:
    """Read the lines `name: value` of a YAML mapping that begin in the first column. Raises
    InvalidArgument for a value of ours in a form that is not read here."""
    found: dict[str, str] = {}
    for line in text.removeprefix("\ufeff").splitlines():
        name, colon, rest = line.partition(":")
        name = name.rstrip().strip("\"'")
        if not colon or name not in _MEMBERS:
            continue
        if rest and rest[0] not in " \t":
            raise InvalidArgument(f"credentials: {name}: a blank must follow the colon")
        found[name] = _yaml_value(name, rest.strip())
    return found


def _yaml_value(name: str, text: str) -> str:
    """Return the text of a scalar on one line, plain or in quotes; comments are removed. Raises
    InvalidArgument, without the value: it may be a secret."""
    refused = InvalidArgument(
        f"credentials: {name}: write the value on the same line, in single quotes if it begins"
        " with a special character"
    )
    if text[:1] in ("'", '"'):
        match = _QUOTED.fullmatch(text)
        if match is None:
            raise refused
        if match["single"] is not None:
            return match["single"].replace("''", "'")
        try:
            return str(json.loads(match["double"]))
        except ValueError:
            raise refused from None
    if text.startswith("#"):
        return ""
    plain = text.partition(" #")[0].rstrip()
    if plain[:1] in set("&*!|>%@`[{"):
        raise refused
    return plain

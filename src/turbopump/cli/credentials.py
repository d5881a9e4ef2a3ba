"""The options by which a command signs its requests: --access-key, --secret-key, --credentials.

Owns their spelling and the choice of the secret: the command line, a file, the environment, or a
question at the terminal. It must never print a secret.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbopump.cli.errors import UserError, sentence_of

if TYPE_CHECKING:
    from turbopump.net.client.credentials import Credentials

PANEL = "Credentials"
"""Title of the options in a command's help."""
TERMINAL = "/dev/tty"
"""File of the terminal at which a secret is typed; standard input may have messages."""
AccessKey = Annotated[
    str | None,
    typer.Option(
        "--access-key",
        metavar="NAME",
        help="Sign requests as this user; default: TURBOPUMP_ACCESS_KEY.",
        rich_help_panel=PANEL,
    ),
]
SecretKey = Annotated[
    str | None,
    typer.Option(
        "--secret-key",
        metavar="SECRET",
        help="Its secret; `ps` shows it to all users, unlike TURBOPUMP_SECRET_KEY or a file.",
        rich_help_panel=PANEL,
    ),
]
CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--credentials",
        metavar="FILE",
        help="A file with accessKey and secretKey, as tools.yml; default: TURBOPUMP_CREDENTIALS.",
        rich_help_panel=PANEL,
    ),
]

_chosen: "ContextVar[Credentials | None]" = ContextVar("credentials", default=None)


def with_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with the three options besides its own. While it runs,
    `chosen_credentials` returns their value."""

    @functools.wraps(command)
    def signing(
        *arguments: Any,
        access_key: str | None = None,
        secret_key: str | None = None,
        credentials_file: Path | None = None,
        **options: Any,
    ) -> None:
        token = _chosen.set(_choose(access_key, secret_key, credentials_file))
        try:
            command(*arguments, **options)
        finally:
            _chosen.reset(token)

    added = {
        "access_key": AccessKey,
        "secret_key": SecretKey,
        "credentials_file": CredentialsFile,
    }
    signature = inspect.signature(command)
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, kind, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    own = [*signature.parameters.values(), *more]
    vars(signing)["__signature__"] = signature.replace(parameters=own)
    signing.__annotations__ = {**command.__annotations__, **added}
    return signing


def chosen_credentials() -> "Credentials | None":
    """Return the credentials that the options of the running command name; None: the command has no
    such option, or none was given, and clients take the environment's."""
    return _chosen.get()


def _choose(name: str | None, secret: str | None, file: Path | None) -> "Credentials | None":
    """Make the credentials of the options; None without options. Raises UserError."""
    if name is None and secret is None and file is None:
        return None
    from turbopump.net.client.credentials import ACCESS_KEY_VARIABLE, Credentials
    from turbopump.net.client.errors import InvalidArgument

    if secret is not None:
        print(
            "turbopump: --secret-key can be read by every user of this machine (ps):"
            " TURBOPUMP_SECRET_KEY and --credentials cannot",
            file=sys.stderr,
        )
        if file is not None:
            raise UserError("the secret is given twice: either --secret-key or --credentials")
        name = name or os.environ.get(ACCESS_KEY_VARIABLE)
        if not name:
            raise UserError("--secret-key needs the name of its user: --access-key NAME")
    try:
        if file is not None:
            return _of_user(Credentials.from_file(file), name, file)
        assert name is not None
        return Credentials(name, secret) if secret is not None else _find(name)
    except InvalidArgument as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(sentence_of(error)) from None


def _of_user(found: "Credentials", name: str | None, file: Path) -> "Credentials":
    """Return the credentials of a file; raises UserError if they are of another user than
    `name`."""
    if name not in (None, found.access_key):
        raise UserError(f"{file} has the secret of {found.access_key}, not of {name}")
    return found


def _find(name: str) -> "Credentials":
    """Return the credentials of the user `name`, with the secret of the environment, else with one
    typed at the terminal. Raises InvalidArgument, UserError."""
    from turbopump.net.client.credentials import (
        ACCESS_KEY_VARIABLE,
        SECRET_KEY_VARIABLE,
        Credentials,
    )

    given = dict(os.environ)
    if given.get(ACCESS_KEY_VARIABLE, "") in ("", name):
        given[ACCESS_KEY_VARIABLE] = name if given.get(SECRET_KEY_VARIABLE) else ""
        found = Credentials.from_environment(given)
        if found is not None and found.access_key == name:
            return found
    return Credentials(name, _ask_for_secret(name))


def _ask_for_secret(name: str) -> str:
    """Ask at the terminal for the secret of a user, without an echo. Raises UserError without a
    terminal."""
    import getpass

    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        return getpass.getpass(f"Secret key of {name}: ")
    except (OSError, EOFError):
        raise UserError(
            f"the secret key of {name} is missing: TURBOPUMP_SECRET_KEY, --credentials FILE or a"
            " terminal"
        ) from None

"""Runs a command's coroutine on uvloop and turns its exceptions into one sentence.

Owns the loop of every command.
"""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from turbopump.cli.credentials import chosen_credentials
from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.files import read_text
from turbopump.cli.options import split_addresses

if TYPE_CHECKING:
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.options import ClientOptions

T = TypeVar("T")

TLS_FILE = "TURBOPUMP_TLS"
"""The environment variable that names a file of RocketMQ's `tls.*` properties.

If it is set, commands connect by TLS.
"""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new uvloop, block meanwhile, and return its result or raise
    its exception."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_with_admin(namesrv: str, call: "Callable[[Admin], Awaitable[T]]") -> T:
    """Run `call` with an admin client and return its result; raises CommandFailed if no node
    answers, or one refuses.
    """
    from turbopump.net.client.admin.client import Admin

    addresses, options = split_addresses(namesrv), client_options()

    async def main() -> T:
        async with Admin(addresses, client_options=options) as admin:
            return await call(admin)

    return run(failing_clearly(main()))


def repeat_call(interval_s: int | None, show: Callable[[], None]) -> None:
    """Call `show` once, or forever with pauses of `interval_s`; None: once."""
    show()
    while interval_s is not None:
        time.sleep(interval_s)
        show()


def client_options() -> "ClientOptions":
    """Make the client options of commands: with the credentials of the running command's options or
    of the environment, and with TLS if the environment names a file (TLS_FILE). Raises UserError if
    a file or the environment is unusable."""
    from turbopump.net.client.credentials import effective_credentials
    from turbopump.net.client.errors import InvalidArgument
    from turbopump.net.client.options import ClientOptions

    try:
        credentials = effective_credentials(chosen_credentials())
    except InvalidArgument as error:
        raise UserError(str(error)) from None
    path = os.environ.get(TLS_FILE)
    if not path:
        return ClientOptions(credentials=credentials)
    from turbopump.net.transport.options import ClientTlsSettings
    from turbopump.net.transport.tls import TlsError, client_context
    from turbopump.net.wire.java_properties import PropertiesError, parse_properties

    try:
        found = {item.key: item.value for item in parse_properties(read_text(Path(path)))}
        settings = ClientTlsSettings.from_properties({**found, "tls.enable": "true"})
        assert settings is not None
        client_context(settings)
    except (PropertiesError, TlsError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
    return ClientOptions(tls=settings, credentials=credentials)


async def failing_clearly(work: Awaitable[T]) -> T:
    """Await `work`, return its result; clients' exceptions become UserError or CommandFailed."""
    from turbopump.net.client.errors import ClientError, InvalidArgument
    from turbopump.net.transport.errors import RemotingError
    from turbopump.net.wire.bodies import BadBody
    from turbopump.net.wire.header import BadHeader

    try:
        return await work
    except InvalidArgument as error:
        raise UserError(one_line(error)) from None
    except (ClientError, RemotingError) as error:
        raise CommandFailed(one_line(error)) from None
    except (BadBody, BadHeader) as error:
        raise CommandFailed(f"an answer cannot be understood: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """Return the text of an error on one line, because a broker's remark may have several; the name
    of its class without a text."""
    return " ".join(str(error).split()) or type(error).__name__

"""Runs a command's coroutine on uvloop and turns what it raises into one sentence.

Owns the loop of every command. Called by the commands that talk to brokers or are brokers.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.options import split_addresses

if TYPE_CHECKING:
    from turbopump.net.client.admin import Admin

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a uvloop of its own."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def ask(namesrv: str, call: "Callable[[Admin], Awaitable[T]]") -> T:
    """What an admin client answers; raises CommandFailed where nobody does, or where it is no."""
    from turbopump.net.client.admin import Admin

    addresses = split_addresses(namesrv)

    async def main() -> T:
        async with Admin(addresses) as admin:
            return await call(admin)

    return run(failing_clearly(main()))


async def failing_clearly(work: Awaitable[T]) -> T:
    """The result of `work`; what clients raise becomes UserError or CommandFailed."""
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
    """What an error says as one line: a broker's remark may have lines of its own."""
    return " ".join(str(error).split()) or type(error).__name__

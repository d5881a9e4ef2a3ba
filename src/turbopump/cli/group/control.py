"""The socket for requests of `turbopump node` to the `turbopump up` of a data folder: DATA/up.sock.

Owns the socket and its protocol: one JSON document a line, a request and its response. The folder's
permissions decide about access. It must never depend on the meaning of a request.

Tests: tests/integration/cli/test_control.py
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from turbopump.cli.errors import CommandFailed, UserError

SOCKET: Final = "up.sock"
"""Name of the socket in the data folder."""
LINE_MAX: Final = 1 << 16
"""Bytes of a request, at most."""
RESPONSE_S: Final = 90.0
"""Timeout of a response, in seconds: long enough for a start with recovery."""

Question = Callable[[dict[str, Any]], Awaitable[Any]]
"""Handler of a request: receives its JSON object, returns a JSON value, or raises UserError."""


class Control:
    """The serving side, on the running loop. `response` returns the result of a request as a JSON
    value, or raises UserError, whose text the requester receives."""

    def __init__(self, data: Path, response: Question) -> None:
        self._data = data
        self._answer = response
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises UserError if another process serves this folder."""
        if is_served(self._data):
            raise UserError(f"turbopump up runs already with the data folder {self._data}")
        with _short_path(self._data) as path, socket.socket(socket.AF_UNIX) as made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            made.bind(path)
            self._server = await asyncio.start_unix_server(
                self._serve_connection, sock=made.dup(), limit=LINE_MAX
            )

    async def stop(self) -> None:
        """Stop listening and remove the socket; without effect before `start`."""
        if self._server is None:
            return
        self._server.close()
        await self._server.wait_closed()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._data / SOCKET)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the request of a connection, and close it."""
        try:
            response: dict[str, Any]
            try:
                question = json.loads(await reader.readline())
                if not isinstance(question, dict):
                    raise ValueError("no object")
                response = {"answer": await self._answer(question)}
            except (ValueError, RecursionError):
                response = {"error": "the question cannot be understood"}
            except UserError as error:
                response = {"error": str(error)}
            writer.write(json.dumps(response).encode() + b"\n")
            await writer.drain()
        except OSError:
            return  # the requester has disconnected
        finally:
            writer.close()


def ask_running_group(data: Path, question: dict[str, Any]) -> Any:
    """Send a request to the `turbopump up` of a data folder, block, and return its result, a JSON
    value.

    Raises UserError if no such process runs, and CommandFailed if it refuses the request, ends, or
    does not answer within ANSWER_S.
    """
    try:
        with _connect(data) as made:
            made.settimeout(RESPONSE_S)
            made.sendall(json.dumps(question).encode() + b"\n")
            with made.makefile("rb") as lines:
                line = lines.readline()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise UserError(
            f"no turbopump up whose nodes are processes runs with the data folder {data}"
        ) from None
    except TimeoutError:
        raise CommandFailed("there was no answer in time") from None
    except (BrokenPipeError, ConnectionResetError):
        raise CommandFailed("turbopump up ended before it answered") from None
    if not line.endswith(b"\n"):
        raise CommandFailed("turbopump up ended before it answered")
    response = json.loads(line)
    if "error" in response:
        raise CommandFailed(response["error"])
    return response["answer"]


def is_served(data: Path) -> bool:
    """Whether a process listens at the socket of a data folder."""
    try:
        with _connect(data):
            return True
    except OSError:
        return False


@contextmanager
def _connect(data: Path) -> Iterator[socket.socket]:
    """Yield a socket that is connected to the `turbopump up` of the data folder. Raises OSError."""
    with _short_path(data) as path, socket.socket(socket.AF_UNIX) as made:
        made.connect(path)
        yield made


@contextmanager
def _short_path(data: Path) -> Iterator[str]:
    """The socket's path through an open descriptor of its folder: the real path may exceed the
    limit of a socket's name."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)

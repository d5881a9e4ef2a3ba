"""Runs nodes until a signal: start, report ready, wait, stop.

Owns the signals and the error texts of a failed start.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, Protocol

from turbopump.cli.errors import UserError, sentence_of
from turbopump.cli.gc_tuning import GcTuning
from turbopump.engine.disk.flush import ABANDONED

OPEN_FILES_MAX = 1 << 20
"""Largest limit of open files that is requested: more than 200,000 connections and 16,384 mapped
files, the most that any broker uses.
"""


class Node(Protocol):
    """A node that runs on the loop: `start` returns when it serves, or raises and leaves nothing
    running; `stop` returns when it has ended."""

    async def start(self) -> None:
        """Start; return when the node serves, or raise and leave nothing running."""
        ...

    async def stop(self) -> None:
        """Stop in order; return when the node has ended."""
        ...


class NodeGroup:
    """Several nodes of a process as a single node: started in order, stopped in reverse order."""

    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes
        self._running: list[Node] = []

    async def start(self) -> None:
        """Start all nodes; if one fails, stop the running nodes and raise its error."""
        try:
            for node in self._nodes:
                await node.start()
                self._running.append(node)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the running nodes, the last started first; each is stopped even if another fails,
        and then the last error is raised."""
        if self._running:
            try:
                await self._running.pop().stop()
            finally:
                await self.stop()


async def serve_until_signal(node: Node, ready: Callable[[], None]) -> None:
    """Start the node, call `ready`, wait for SIGINT, SIGTERM or SIGHUP (a closed terminal), stop.

    A signal during the start cancels it, so a long recovery ends soon; the next start resumes it.
    Raises UserError if the node cannot start.
    """
    raise_open_files()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup: the node outlives its terminal
        loop.add_signal_handler(number, stop.set)
    is_up = False
    try:
        is_up = await _start_unless_stopped(node, stop)
        if not is_up:
            return
    finally:
        if ABANDONED and not is_up:
            exit_at_once()
    gc_tuning = GcTuning()
    gc_tuning.begin_freezing()
    try:
        ready()
        await stop.wait()
    finally:
        gc_tuning.end_freezing()
        try:
            await node.stop()
        finally:
            if ABANDONED:
                exit_at_once()


def exit_at_once() -> NoReturn:
    """End the process at once with exit code 1, although one of its threads waits for a disk that
    does not respond; logs and output are flushed first."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def raise_open_files() -> None:
    """Raise this process's soft limit of open files to this user's maximum, at most OPEN_FILES_MAX.

    The usual soft limit of 1,024 is less than a broker's connections and mapped files, and only
    programs that still use select() need it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _start_unless_stopped(node: Node, stop: asyncio.Event) -> bool:
    """Whether the node started; False after a signal, and then no node runs."""
    starting, stopping = (
        asyncio.ensure_future(_start_node(node)),
        asyncio.ensure_future(stop.wait()),
    )
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    if starting.cancelled():
        return False
    starting.result()
    return True


async def _start_node(node: Node) -> None:
    """Start a node; its errors become UserError."""
    from turbopump.broker.node import StartError
    from turbopump.engine.types import StoreError
    from turbopump.net.transport.tls import TlsError
    from turbopump.net.wire.java_properties import PropertiesError

    try:
        await node.start()
    except (StartError, StoreError, PropertiesError, TlsError) as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot start: {sentence_of(error)}") from None

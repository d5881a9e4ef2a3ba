"""Connections to the name servers: sends registrations, handles answers, unregisters at the stop.

Owns the requests in progress. It must never know when a registration is due or its content: that is
`registration`. node.py starts, ticks and stops it.

Tests: tests/integration/broker/test_name_servers.py
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from turbopump.broker.registration.registration import (
    MAX_INLINE_TOPICS,
    NameServerState,
    Registration,
    RegistrationOutcome,
    Work,
)
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import CallTimeout, ConnectError, RemotingError
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command

logger = logging.getLogger(__name__)

FIRST_REGISTRATION_MS = 1_000
"""Maximum time that a start waits for name servers, in ms. Slower servers are registered at later,
but clients may ask them before."""
UNREGISTER_MS = 1_000
"""Maximum time that a stop waits for name servers, in ms."""


class _RunOnThread(Protocol):
    """A function that runs work on a disk thread."""

    def __call__(self, work: Callable[[], Command]) -> Coroutine[None, None, Command]:
        """Return the result of `work`; raises OSError."""


class NameServers:
    """Sends the registrations at the name servers, on the running loop. Loop thread only. Failures
    raise nothing: they are logged when they change, and the registration is repeated."""

    def __init__(
        self,
        registration: Registration,
        client: Client,
        run_on_thread: _RunOnThread,
        now_ms: Callable[[], int],
        timeout_ms: int,
        may: Callable[[], bool],
        on_lost: Callable[[], None],
        is_old: Callable[[str], bool],
    ) -> None:
        """`may` returns whether this broker may register now: no client may be sent to a broker
        that does not know its role yet (R32). `on_lost` is called when a connection was lost, so
        that a name server may have forgotten this broker; `is_old` returns whether the name server
        at an address is RocketMQ 4's. `now_ms` returns the wall clock in ms since 1970,
        `timeout_ms` is of connections and answers of registrations."""
        self._registration = registration
        self._client = client
        self._run_on_thread = run_on_thread
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._may = may
        self._on_lost = on_lost
        self._is_old = is_old
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: set[str] = set()
        self._soon: asyncio.Handle | None = None
        self._ended = False
        self._complaints: dict[str, str] = {}
        self._watched: set[str] = set()
        self._watch_connections(registration.servers)

    def reconfigure(self, timeout_ms: int) -> None:
        """Set a new time-out for registrations, and let Registration read its settings again; new
        name servers are registered at in the loop's next turn."""
        self._timeout_ms = timeout_ms
        self._watch_connections(self._registration.reconfigure())
        self._tick_soon()

    def _watch_connections(self, servers: Sequence[NameServerState]) -> None:
        """Have a lost connection to any of these name servers reported, once for each address."""
        for address in [one.address for one in servers if one.address not in self._watched]:
            self._watched.add(address)
            self._client.on_lost(address, partial(self._on_connection_lost, address))

    def register_changed(self, topics: Sequence[str]) -> Deferred[None]:
        """Register changed topics at all name servers, in the loop's next turn (an empty list: all
        topics, or the broker's role). Resolves when each name server has them or is not waited for,
        after MAX_WAIT_MS of registration.py at the latest; at once while `may` returns False, and
        then nothing is registered."""
        if not self._may():
            return Deferred.resolved(None)
        registered = self._registration.note_changed(topics, self._steady_ms())
        self._tick_soon()
        return registered

    def send_heartbeats(self, timeout_ms: int) -> None:
        """Begin to send a one-way heartbeat to each name server, unless its previous heartbeat is
        still in progress; `timeout_ms` is of the connection. Errors are ignored."""
        if self._ended or not self._may():
            return
        request = self._registration.heartbeat_request
        for server in self._registration.servers:
            if server.address not in self._beating:
                self._beating.add(server.address)
                beat = request(old=self._is_old(server.address))
                task = self._loop.create_task(
                    self._send_heartbeat(server.address, beat, timeout_ms)
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send_heartbeat(self, address: str, request: Command, timeout_ms: int) -> None:
        """Send a heartbeat. A failure is ignored, because the next heartbeat follows; the
        registration reports problems."""
        try:
            with suppress(RemotingError):
                await self._client.notify(address, request, timeout_ms)
        finally:
            self._beating.discard(address)

    def tick(self) -> None:
        """Begin to send the registrations that are due; called several times a second."""
        self._soon = None
        if self._ended or not self._may():
            return
        for server in self._registration.servers:
            work = server.take_due_registration(self._steady_ms())
            if work is not None:
                task = self._loop.create_task(self._register(server, work))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def await_first_registrations(self) -> None:
        """Wait until the first registrations, which are in progress, are answered or have failed,
        at most FIRST_REGISTRATION_MS; to be called after the first `tick`."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=FIRST_REGISTRATION_MS / 1000)

    async def unregister_everywhere(self) -> None:
        """Begin no further registration or heartbeat, and unregister at all name servers at once;
        waits for their answers, at most UNREGISTER_MS."""
        self._ended = True
        if not self._may():
            return  # nothing was ever registered

        async def leave(address: str) -> None:
            try:
                request = self._registration.unregister_request()
                await self._client.call(address, request, UNREGISTER_MS)
            except RemotingError as error:
                logger.info("name server %s could not be notified of the stop: %s", address, error)

        await asyncio.gather(*(leave(server.address) for server in self._registration.servers))

    async def stop(self) -> None:
        """Cancel the requests in progress, and begin no other."""
        self._ended = True
        if self._soon is not None:
            self._soon.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_connection_lost(self, address: str) -> None:
        """Handle a lost connection to a name server: register there again."""
        server = self._registration.find(address)
        if not self._ended and server is not None:
            server.on_connection_lost(self._steady_ms())
            self._on_lost()
            self._tick_soon()

    def _tick_soon(self) -> None:
        """Call `tick` in the loop's next turn."""
        if self._soon is None:
            # Not at once: changes by a handler in a single turn go into a single registration.
            self._soon = self._loop.call_soon(self.tick)

    async def _register(self, server: NameServerState, work: Work) -> None:
        """Connect to a name server, send the registration `work`, and apply its outcome."""
        outcome = RegistrationOutcome.REFUSED
        try:
            # Connect first: without a connection a large request would be made in vain, once a
            # second.
            await self._client.connect(server.address, self._timeout_ms)
            topics, make = self._registration.begin_request(work)
            request = make() if topics <= MAX_INLINE_TOPICS else await self._run_on_thread(make)
            response = await self._client.call(server.address, request, self._timeout_ms)
            if self._registration.apply_response(response, self._now_ms()):
                outcome = RegistrationOutcome.TAKEN
            reason = response.remark or str(response.code)
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                reason = "it is no name server"
        except (RemotingError, OSError) as error:
            reason = str(error)
            if isinstance(error, ConnectError | CallTimeout):
                outcome = RegistrationOutcome.UNREACHED
            if isinstance(error, CallTimeout):
                self._client.reconnect_next(server.address)
        finally:
            server.apply_outcome(work, outcome, self._steady_ms())
        self._log_if_new(server.address, "" if outcome is RegistrationOutcome.TAKEN else reason)
        self.tick()

    def _log_if_new(self, address: str, complaint: str) -> None:
        """Log a problem only when it changes: an unreachable name server is tried each second."""
        if complaint == self._complaints.get(address, ""):
            return
        self._complaints[address] = complaint
        if complaint:
            logger.warning("not registered at name server %s: %s", address, complaint)
        else:
            logger.info("registered at name server %s again", address)

    def _steady_ms(self) -> int:
        return round(self._loop.time() * 1_000)

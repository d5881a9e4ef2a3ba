"""Keeps a load running when its broker is lost: queries the route again and reconnects.

Owns the sockets of a run, their brokers and the times of route queries. It must never count or
send: pyx/load.pyx does, and keeps its count through a failover. All calls come from the thread that
waits for the load.
"""

import asyncio
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.run_command import failing_clearly, run
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.options import ClientOptions
from turbopump.net.wire.route import MASTER_ID
from turbopump.pyx.load import Load

LOOK_S: Final = 0.02
"""Interval of checks of the connections, and of route queries in a failover, in seconds."""
SILENT_S: Final = 1.0
"""Seconds without an acknowledgement after which the route is queried, too: a dead machine
closes no connection."""
ASK_S: Final = 1.0
"""Timeout, in seconds, of all route queries of a check, and of a reconnection."""
CONNECT_S: Final = 3.0
"""Timeout of the first connection to a broker, in seconds (RocketMQ: connectTimeoutMillis)."""

Addresses = Mapping[str, Mapping[int, str]]
"""Map of broker names; each value maps broker ids to `host:port`."""


@dataclass(slots=True)
class BrokerLink:
    """A connection of a load to a broker: its socket, and whether it sends or pulls."""

    broker_name: str
    topic: str
    """Topic whose route has the broker's addresses."""
    is_sender: bool
    """Whether it sends; else it pulls."""
    address: str
    """`host:port` of the connection."""
    made: socket.socket
    """The socket; `Links` closes it."""

    def address_to_connect(self, addresses: Addresses) -> str | None:
        """Return the `host:port` to connect to: the master's, or for a reader without a master the
        broker's with the lowest id; None if there is no such broker."""
        known = addresses.get(self.broker_name, {})
        if self.is_sender or MASTER_ID in known:
            return known.get(MASTER_ID)
        return known[min(known)] if known else None


class Links:
    """The connections of a load, in the order of their numbers there. Its methods block."""

    def __init__(self, namesrv: list[str], options: ClientOptions) -> None:
        self._namesrv = namesrv
        self._options = options
        self._all: list[BrokerLink] = []
        self._acked = 0
        self._moved_s = time.monotonic()
        self._asked_s = 0.0

    def open_connection(self, broker_name: str, topic: str, is_sender: bool, address: str) -> int:
        """Open the load's next connection, to `address` (`host:port`) of the broker, to send to
        `topic` (`is_sender`) or pull from it. Returns its file descriptor; this object owns and
        closes it. Raises CommandFailed if the broker cannot be reached."""
        try:
            made = open_socket(address, CONNECT_S)
        except OSError as error:
            raise CommandFailed(f"{address}: {error.strerror or error}") from None
        self._all.append(BrokerLink(broker_name, topic, is_sender, address, made))
        return made.fileno()

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        """Close all connections; only after the load has ended."""
        for link in self._all:
            link.made.close()

    def maintain_connections(self, load: Load) -> None:
        """Reconnect lost connections at their brokers' current addresses, and after SILENT_S
        without an acknowledgement drop connections to former addresses. Call it every LOOK_S while
        the load runs; it blocks for route queries then."""
        now_s = time.monotonic()
        acked = load.progress()[1] + load.progress()[2]
        if acked != self._acked:
            self._acked, self._moved_s = acked, now_s
        is_silent = now_s - max(self._moved_s, self._asked_s) > SILENT_S
        if not load.away and not is_silent:
            return
        self._asked_s = now_s
        addresses = self._query_addresses()
        unreachable: set[str] = set()
        for number, link in enumerate(self._all):
            wanted = link.address_to_connect(addresses)
            if wanted is None:
                continue
            if load.is_away(number):
                if wanted not in unreachable and not self._replace_socket(load, number, wanted):
                    unreachable.add(wanted)
            elif is_silent and wanted != link.address:
                load.drop(number)

    def _replace_socket(self, load: Load, number: int, address: str) -> bool:
        """Replace the socket of connection `number` by a new one to `address`; False if
        it cannot connect."""
        link = self._all[number]
        try:
            made = open_socket(address, ASK_S)
        except OSError:
            return False
        load.hand_over(number, made.fileno())
        link.made.close()
        link.made, link.address = made, address
        return True

    def _query_addresses(self) -> Addresses:
        """Query the current addresses of the brokers; unknown brokers are left out."""
        topics = {link.broker_name: link.topic for link in self._all}
        try:
            return run(failing_clearly(self._query_routes(sorted(set(topics.values())))))
        except UserError:  # or CommandFailed: the name server is unreachable, too
            return {}

    async def _query_routes(self, topics: list[str]) -> Addresses:
        """Query the routes of topics; returns the addresses of their brokers by name and id."""
        instance = ClientInstance(self._namesrv, self._options)
        found: dict[str, Mapping[int, str]] = {}
        await instance.acquire()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_S):
                    for topic in topics:
                        route = await instance.refresh(topic)
                        found.update(route.brokers if route is not None else {})
        finally:
            await instance.release()
        return found


def open_socket(address: str, timeout_s: float) -> socket.socket:
    """Connect to `host:port` within `timeout_s`, and return the socket, non-blocking and with
    TCP_NODELAY. Raises OSError."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made

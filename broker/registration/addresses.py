"""Addresses of this machine for records and name servers, and errors for ports that are in use.

Owns the look-ups of names and of the own address. It must never listen.

Tests: tests/unit/broker/registration/test_registration.py
"""

import asyncio
import errno
import socket

from turbopump.engine.types import TurbopumpError

VIP_DISTANCE = 2
"""Distance of a broker's ports for clients: the VIP port is listenPort - 2
(MixAll.brokerVIPChannel)."""


class StartError(TurbopumpError):
    """The broker cannot start; the message is a sentence for the operator."""


def listen_error_text(host: str, port: int, error: Exception) -> str:
    """Return the sentence for the operator after `error`, with which listening on `host` and `port`
    failed."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} (or {port - VIP_DISTANCE}, its VIP port) is in use at {host}"
    return f"cannot listen on {host}:{port}: {error}"


async def ip_of(host: str) -> str:
    """Return the IP address, as text, for the records of a broker whose brokerIP1 is `host`: a
    name, which is looked up, or an address. IPv4 is preferred, as in Java's InetAddress. Raises
    StartError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"brokerIP1={host} is no address: {reason}") from None
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


def local_ip() -> str:
    """This machine's IPv4 address on the route to other networks, as text; 127.0.0.1 without such a
    route. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"

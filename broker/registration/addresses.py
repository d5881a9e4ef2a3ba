"""Addresses of this machine: what records and name servers get, and why a port is not had.

Owns the look-ups of names and of the own address. It must never listen. Called by node.py.
"""

import asyncio
import errno
import socket

from turbopump.engine.types import TurbopumpError

VIP_DISTANCE = 2  # the VIP port is listenPort - 2 (MixAll.brokerVIPChannel)


class StartError(TurbopumpError):
    """The broker cannot start; the message is one sentence for the operator."""


def why_not(host: str, port: int, error: Exception) -> str:
    """The sentence for a port that cannot be listened on."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} (or {port - VIP_DISTANCE}, its VIP port) is in use at {host}"
    return f"cannot listen on {host}:{port}: {error}"


async def ip_of(host: str) -> str:
    """The ip that records carry for brokerIP1, which may be a name (clients get the name); IPv4
    first, as Java's InetAddress. Raises StartError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"brokerIP1={host} is no address: {reason}") from None
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


def local_ip() -> str:
    """The address others reach this machine at; the loopback address if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"

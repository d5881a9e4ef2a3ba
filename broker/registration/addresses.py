"""Addresses of this machine for records and name servers, and errors for ports that are in use.

Owns the look-ups of names and of the own address. It must never listen.

Tests: tests/unit/broker/registration/test_registration.py
"""

import asyncio
import errno
import socket

from turbopump.engine.types import TurbopumpError

VIP_DISTANCE = 2  # the VIP port is listenPort - 2 (MixAll.brokerVIPChannel)


class StartError(TurbopumpError):
    """The broker cannot start; the message is a sentence for the operator."""


def why_not(host: str, port: int, error: Exception) -> str:
    """The sentence for a port that cannot be listened on."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} (or {port - VIP_DISTANCE}, its VIP port) is in use at {host}"
    return f"cannot listen on {host}:{port}: {error}"


async def ip_of(host: str) -> str:
    """The ip of brokerIP1 in records; brokerIP1 may be a name, which clients get as it is. IPv4 is
    preferred, as in Java's InetAddress. Raises StartError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"brokerIP1={host} is no address: {reason}") from None
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


def local_ip() -> str:
    """The address of this machine for others; the loopback address if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"

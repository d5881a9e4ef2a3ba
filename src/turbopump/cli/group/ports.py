"""Free ports for nodes with fixed ports: chosen now, listened at later, and after each restart.

It must never choose a port from the kernel's range for outgoing connections while there are others:
a connection of any process could take the port before the node listens, or while the node is
stopped.

Tests: tests/integration/cli/test_ports.py
"""

import errno
import random
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

FIRST: Final = 20_000
"""Lowest port that is chosen."""
KERNEL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""File with the kernel's range of ports for outgoing connections."""
TRIED: Final = 100
"""Tries to find free ports before an error."""


def free_port(host: str, taken: Collection[int], count: int) -> int:
    """Return the first of `count` consecutive ports, none in `taken`, at which no process listens
    now; the ports are not reserved.

    Raises OSError if no such ports are found, or if `host` is not an address of this machine.
    """
    ends = _kernels_first() - count
    for _ in range(TRIED):
        port = _bind_port(host, random.randrange(FIRST, ends) if ends > FIRST else 0)
        others = range(port + 1, min(port + count, 65_536))
        if len(others) < count - 1 or {port, *others} & set(taken):
            continue
        if port and all(_bind_port(host, at) for at in others):
            return port
    raise OSError(f"no {count} free ports in a row are found at {host}")


def _kernels_first() -> int:
    """The lowest port of the kernel's range for outgoing connections; 0 if unknown."""
    try:
        return int(KERNEL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _bind_port(host: str, port: int) -> int:
    """Bind a socket and return its port; 0 if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as made:
        try:
            made.bind((host, port))
        except OSError as error:
            if port and error.errno == errno.EADDRINUSE:
                return 0
            raise
        return int(made.getsockname()[1])

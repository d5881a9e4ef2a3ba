"""Free ports for nodes that keep theirs: written down, listened at later, and after each restart.

Must never choose one of those that the kernel gives to outgoing connections while there are others:
a connection of any process could have it before the node listens, or while the node is stopped.
Called by files.py.
"""

import errno
import random
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

FIRST: Final = 20_000
KERNEL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIED: Final = 100


def free_port(host: str, taken: Collection[int], count: int) -> int:
    """The first of `count` ports in a row that no process listens at now.

    Raises OSError if none is found, or the host is none of this machine's.
    """
    ends = _kernels_first() - count
    for _ in range(TRIED):
        port = _bound(host, random.randrange(FIRST, ends) if ends > FIRST else 0)
        others = range(port + 1, min(port + count, 65_536))
        if len(others) < count - 1 or {port, *others} & set(taken):
            continue
        if port and all(_bound(host, at) for at in others):
            return port
    raise OSError(f"no {count} free ports in a row are found at {host}")


def _kernels_first() -> int:
    """The lowest port that the kernel gives away; 0 where that cannot be known."""
    try:
        return int(KERNEL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _bound(host: str, port: int) -> int:
    """The port that a socket got, 0 if it got none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as made:
        try:
            made.bind((host, port))
        except OSError as error:
            if port and error.errno == errno.EADDRINUSE:
                return 0
            raise
        return int(made.getsockname()[1])

"""Ports for processes that receive a fixed port, or come back to their former port.

Must never choose a port twice, nor one in the kernel's own range: its owner may not listen yet, or
not now, and a connection could get the port meanwhile.
"""

import os
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
RANGE = (10_000, 20_000)
"""`turbopump up` chooses ports above this for its processes (cli/group/ports.py)."""
LEAST = 1_000
"""Number of ports below the kernel's range to choose from."""
KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BROKER = (-2, 0)
"""A broker also listens two below its port (RocketMQ: fastListenPort, the VIP channel)."""
BROKER_AND_HA = (-2, 0, 1)
"""A broker also listens one above its port, for replicas, unless haListenPort is set."""
_given: set[int] = set()


def free_port(beside: tuple[int, ...] = (0,)) -> int:
    """Return a port that is free now, as are its neighbours at these distances."""
    mine = _mine()
    while True:
        port = random.choice(mine)
        wanted = [port + by for by in beside]
        if all(one in mine and one not in _given and _is_free(one) for one in wanted):
            _given.update(wanted)
            return port


def free_ports(count: int, beside: tuple[int, ...] = (0,)) -> list[int]:
    """Return several free ports."""
    return [free_port(beside) for _ in range(count)]


def _mine() -> range:
    """Return this process's share of the ports: test processes that run side by side must not
    choose the same."""
    first_of_kernel = int(KERNEL_RANGE.read_text().split()[0])
    low, high = RANGE
    high = max(min(high, first_of_kernel), low + LEAST)
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # A worker that replaces a dead one has the next number.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % count
    size = (high - low) // count
    return range(low + number * size, low + (number + 1) * size)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

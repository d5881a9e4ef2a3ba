"""Ports for processes that are given theirs, or come back to the one they had.

Must never give a port twice, nor one of the kernel's own range: its owner may not listen yet, or
not now, and a connection could have it by then. Called wherever processes start, in tests/ too.
"""

import os
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
RANGE = (10_000, 20_000)
"""Behind these `turbopump up` chooses for its processes (cli/group/ports.py)."""
LEAST = 1_000
"""So many below those of the kernel are enough to choose from."""
KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BROKER = (-2, 0)
"""A broker listens two below its port, too (RocketMQ: fastListenPort, the VIP channel)."""
BROKER_AND_HA = (-2, 0, 1)
"""And one above it, for replicas, unless haListenPort says otherwise."""
_given: set[int] = set()


def free_port(beside: tuple[int, ...] = (0,)) -> int:
    """A port for which it and its neighbours, so many beside it, are free now."""
    mine = _mine()
    while True:
        port = random.choice(mine)
        wanted = [port + by for by in beside]
        if all(one in mine and one not in _given and _is_free(one) for one in wanted):
            _given.update(wanted)
            return port


def free_ports(count: int, beside: tuple[int, ...] = (0,)) -> list[int]:
    """Several of them."""
    return [free_port(beside) for _ in range(count)]


def _mine() -> range:
    """Each of the test processes that run side by side has a part: none sees what others gave."""
    first_of_kernel = int(KERNEL_RANGE.read_text().split()[0])
    low, high = RANGE
    high = max(min(high, first_of_kernel), low + LEAST)
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # A worker that replaces one that died has the next number.
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

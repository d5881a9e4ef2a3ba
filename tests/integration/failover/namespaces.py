"""Machines on one host: network namespaces on a bridge of their own, separated from one another, or
answered with resets by an impostor at another's address.

Owns its namespaces, which hold everything that it makes and are removed as a whole. It must never
touch an interface outside of them.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:fe"
"""A hardware address that no machine has: packets for it arrive nowhere."""
FOLDER = "/var/run/netns"
PREFIX = "turbopump"
IMPOSTOR = "impostor"
"""Name of a machine without a process that takes the address of another machine: its kernel
answers with resets.
"""
RUN_S = 20
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = count()


class NotPermittedError(Exception):
    """Namespaces cannot be made here; the text has the reason."""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise NotPermittedError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


class Machines:
    """A namespace for each machine, with 10.91.0.0/24 among them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._prefix = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._prefix}-hub"
        self._made: list[str] = []
        self._cut: set[tuple[str, str]] = set()
        self._unplugged: set[str] = set()

    def make(self) -> None:
        """Raises NotPermittedError; then nothing is left."""
        if os.geteuid() != 0:
            raise NotPermittedError("only root makes network namespaces")
        if shutil.which("ip") is None:
            raise NotPermittedError("there is no program ip (iproute2)")
        _remove_left()
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def _make(self) -> None:
        self._add(self._hub)
        _run("ip", "-n", self._hub, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", self._hub, "link", "set", "br0", "up")
        for name in self.names:
            space = self.space(name)
            self._add(space)
            self._connect(name, space)
            _run("ip", "-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        self._add(self.space(IMPOSTOR))
        self._connect(IMPOSTOR, self.space(IMPOSTOR))

    def _connect(self, name: str, space: str) -> None:
        _run(
            "ip",
            "-n",
            self._hub,
            "link",
            "add",
            name,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "address",
            self._hardware(name),
            "netns",
            space,
        )
        _run("ip", "-n", self._hub, "link", "set", name, "master", "br0", "up")
        for device in ("lo", "eth0"):
            _run("ip", "-n", space, "link", "set", device, "up")

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:01:{[*self.names, IMPOSTOR].index(name) + 1:02x}"

    def _add(self, space: str) -> None:
        _run("ip", "netns", "add", space)
        self._made.append(space)

    def remove(self) -> None:
        """Remove all namespaces, with their content."""
        while self._made:
            _run("ip", "netns", "delete", self._made.pop())

    def space(self, name: str) -> str:
        """The namespace of a machine."""
        return f"{self._prefix}-{name}"

    def address(self, name: str) -> str:
        """Address of a machine."""
        return f"10.91.0.{self.names.index(name) + 1}"

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """Command that runs a program in the namespace, as the same process."""
        return ["ip", "netns", "exec", self.space(name), *words]

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Context in which this thread opens its sockets in the namespace."""
        path = f"{FOLDER}/{self.space(name)}"
        with open("/proc/thread-self/ns/net") as home, open(path) as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    # Cables

    def unplug(self, name: str) -> None:
        """Disconnect a machine from all others."""
        self._unplugged.add(name)
        _run("ip", "-n", self._hub, "link", "set", name, "down")

    def cut(self, name: str, others: Iterable[str]) -> None:
        """Lose all packets between a machine and these others, in both directions."""
        for other in others:
            for one, to in ((name, other), (other, name)):
                _run(
                    "ip",
                    "-n",
                    self.space(one),
                    "neighbour",
                    "replace",
                    self.address(to),
                    "lladdr",
                    NOBODY,
                    "dev",
                    "eth0",
                    "nud",
                    "permanent",
                )
                self._cut.add((one, to))

    def reset(self, name: str, others: Iterable[str]) -> None:
        """Answer the packets of these others with resets, as a filter of the host may do; the
        machine receives none of them. For one machine at a time.
        """
        impostor = self.space(IMPOSTOR)
        _run("ip", "-n", impostor, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        for other in others:
            _run(
                "ip",
                "-n",
                impostor,
                "neighbour",
                "replace",
                self.address(other),
                "lladdr",
                self._hardware(other),
                "dev",
                "eth0",
                "nud",
                "permanent",
            )
            _run(
                "ip",
                "-n",
                self.space(other),
                "neighbour",
                "replace",
                self.address(name),
                "lladdr",
                self._hardware(IMPOSTOR),
                "dev",
                "eth0",
                "nud",
                "permanent",
            )
            self._cut.add((other, name))

    def heal(self) -> None:
        """Undo all disconnections, cuts and resets."""
        while self._unplugged:
            _run("ip", "-n", self._hub, "link", "set", self._unplugged.pop(), "up")
        _run("ip", "-n", self.space(IMPOSTOR), "address", "flush", "dev", "eth0")
        while self._cut:
            one, to = self._cut.pop()
            _run(
                "ip", "-n", self.space(one), "neighbour", "delete", self.address(to), "dev", "eth0"
            )


def _remove_left() -> None:
    """Remove namespaces of killed tests: their names have the id of a process that has ended."""
    for path in Path(FOLDER).glob(f"{PREFIX}-*-*-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            _run("ip", "netns", "delete", path.name)


def _enter(space: int) -> None:
    if _libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")

"""Groups ruled by a quorum of controllers: brokers of either kind, one broker name.

Owns the addresses of their members, their lives, and queries with hand-made frames. It decides
nothing.
"""

import json
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop.support.groups import (
    BROKER_NAME,
    CLUSTER,
    Group,
    Kind,
    Ports,
    Response,
    ask,
    wait_listening,
)
from interop.support.mqadmin import RAW_KEY
from interop.support.ports import BROKER_AND_HA, free_port, free_ports
from interop.support.processes import Process

READY_S = 120.0
"""Three Java controllers and brokers that start on a busy machine take most of a minute."""
LOOK_S = 0.02
ASK_S = 2.0
ELECT_MASTER, METADATA_INFO, SYNC_STATE_DATA = 1002, 1005, 1006
RUNTIME_INFO = 28
TAIL_SIZE = 300
"""Number of characters of each member's last output that an error shows."""
FILE_SIZE = 16 << 20
BROKER = {
    "brokerId": "-1",
    "brokerRole": "SLAVE",
    "brokerIP2": "127.0.0.1",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
}


class NotReadyError(RuntimeError):
    """A condition did not hold in time; the text has the last output of the members."""


@dataclass
class Member:
    """A process that dies and comes back at the same address, on the same files."""

    name: str
    folder: Path
    port: int
    begin: Callable[[Path], Process]
    process: Process | None = None
    lives: int = 0
    is_wanted: bool = False
    """Whether the process was started, and not ended on purpose since."""

    @property
    def address(self) -> str:
        """Address of the process."""
        return f"127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        """Folder of its files, the same in all lives."""
        return self.folder / "store"

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Start another life; the process may need time to serve."""
        assert not self.running
        self.lives, self.is_wanted = self.lives + 1, True
        self.process = self.begin(self.folder)

    def kill(self) -> None:
        """Kill with SIGKILL; returns when the process is dead."""
        assert self.process is not None
        self.is_wanted = False
        self.process.kill()

    def stop(self) -> None:
        """Stop the process as an operator does."""
        self.is_wanted = False
        if self.process is not None:
            self.process.stop()


@dataclass(frozen=True)
class Sync:
    """The controllers' state of the group."""

    master: str
    """Address of the master; empty without a master."""
    master_epoch: int
    set_epoch: int
    in_sync: frozenset[str]
    """Addresses of the SyncStateSet's members that are alive."""
    ids: dict[str, int]
    """Ids by address, of all registered brokers."""


@dataclass
class Controlled:
    """A group of brokers under a quorum of controllers."""

    folder: Path
    namesrv_kind: Kind
    controller_kinds: Sequence[Kind]
    broker_kinds: Sequence[Kind]
    settings: dict[str, str] = field(default_factory=dict)
    """Further settings of each broker."""
    controller_settings: dict[str, str] = field(default_factory=dict)
    controllers: list[Member] = field(default_factory=list)
    brokers: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = Ports.free()
        self.namesrv_port = first.namesrv
        self.namesrv = Member(
            "namesrv",
            self.folder / "namesrv",
            first.namesrv,
            lambda folder: self.namesrv_kind.namesrv(first, folder),
        )
        peers = free_ports(len(self.controller_kinds))
        self.controllers = [self._controller(number, peers) for number in range(len(peers))]
        self.brokers = [self._broker(number) for number in range(len(self.broker_kinds))]

    def _controller(self, own: int, peers: list[int]) -> Member:
        kind = self.controller_kinds[own]
        return Member(
            f"n{own}",
            self.folder / f"controller-{own}-{kind.name}",
            peers[own],
            lambda folder: kind.controller(own, peers, folder, self.controller_settings),
        )

    def _broker(self, number: int) -> Member:
        kind = self.broker_kinds[number]
        ports = Ports(self.namesrv_port, free_port(BROKER_AND_HA))

        def begin(folder: Path) -> Process:
            settings = {**BROKER, "controllerAddr": self.controller_addresses, **self.settings}
            return kind.broker(ports, folder, folder / "store", settings)

        return Member(
            f"broker-{number}", self.folder / f"broker-{number}-{kind.name}", ports.broker, begin
        )

    # Life

    @property
    def members(self) -> list[Member]:
        """All members."""
        return [self.namesrv, *self.controllers, *self.brokers]

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for clients."""
        return self.namesrv.address

    @property
    def controller_addresses(self) -> str:
        """Addresses of the controllers, as brokers and mqadmin receive them."""
        return ";".join(one.address for one in self.controllers)

    @property
    def as_group(self) -> Group:
        """Address of a controller for mqadmin."""
        running = [one.process for one in self.members if one.process is not None]
        return Group(Ports(self.namesrv_port, self.brokers[0].port), running)

    def start(self) -> None:
        """Start all members; the first broker becomes the first master. Returns when all are in
        sync."""
        self.start_rulers()
        self.brokers[0].start()
        self.until("a first master", lambda: (found := self.sync()) and found.master)
        for broker in self.brokers[1:]:
            broker.start()
        self.wait_whole()

    def start_rulers(self) -> None:
        """Start name server and controllers; returns when a controller leads."""
        for one in (self.namesrv, *self.controllers):
            one.start()
        assert self.namesrv.process is not None
        wait_listening(self.namesrv_port, self.namesrv.process)
        self.until("a leading controller", lambda: self.leader() is not None)

    def stop(self) -> None:
        """End all processes, brokers first."""
        for one in reversed(self.members):
            one.stop()

    def abandon(self) -> None:
        """Kill all processes: a JVM takes seconds to stop, and its files are not needed."""
        for one in reversed(self.members):
            if one.running:
                one.kill()

    def until(self, what: str, holds: Callable[[], object], timeout_s: float = READY_S) -> None:
        """Return when a condition holds. Raises NotReadyError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if holds():
                    return
            except (OSError, struct.error, ValueError):
                pass  # a missing answer counts as no
            late = time.monotonic() > deadline
            if late or any(one.is_wanted and not one.running for one in self.members):
                why = f"not within {timeout_s:.0f} s" if late else "a member died"
                raise NotReadyError(f"{why}: {what}; {self._tails()}")
            time.sleep(LOOK_S)

    def _tails(self) -> str:
        tails = [
            f"{one.name}: {'' if one.running else 'dead; '}{one.process.tail(TAIL_SIZE)}"
            for one in self.members
            if one.process is not None
        ]
        return "\n".join([str(self.sync()), *tails])

    # The controllers' state

    def leader(self) -> Member | None:
        """Return the controller that reports to lead."""
        for one in self.controllers:
            response = self._ask(one.port, METADATA_INFO, {})
            if (
                response is not None
                and response.code == 0
                and response.fields.get("isLeader") == "true"
            ):
                return one
        return None

    def to_leader(self, code: int, fields: dict[str, str], body: bytes = b"") -> Response | None:
        """Send a request to the leading controller; None while no controller answers."""
        leader = self.leader()
        return self._ask(leader.port, code, fields, body) if leader else None

    def sync(self) -> Sync | None:
        """Return the controllers' state of the group; None while no controller answers."""
        response = self.to_leader(SYNC_STATE_DATA, {}, json.dumps([BROKER_NAME]).encode())
        if response is None or response.code != 0:
            return None
        table = _json(response.body).get("replicasInfoTable", {})
        return _sync(table[BROKER_NAME]) if BROKER_NAME in table else None

    def elect(self, broker: Member) -> Response | None:
        """Elect a master, as an administrator does."""
        found = self.sync()
        assert found is not None
        fields = {
            "clusterName": CLUSTER,
            "brokerName": BROKER_NAME,
            "designateElect": "true",
            "brokerId": str(found.ids[broker.address]),
        }
        return self.to_leader(ELECT_MASTER, fields)

    @staticmethod
    def _ask(port: int, code: int, fields: dict[str, str], body: bytes = b"") -> Response | None:
        try:
            return ask(port, code, fields, body, timeout_s=ASK_S)
        except (OSError, struct.error, ValueError):
            return None  # the controller died while answering

    # Results

    @property
    def master(self) -> Member | None:
        """Return the broker that is the master for the controllers."""
        found = self.sync()
        return next((one for one in self.brokers if found and one.address == found.master), None)

    def is_whole(self) -> bool:
        """Whether all brokers run and are in the SyncStateSet of a master."""
        found = self.sync()
        return (
            found is not None
            and bool(found.master)
            and all(one.running and one.address in found.in_sync for one in self.brokers)
        )

    def wait_whole(self, timeout_s: float = READY_S) -> None:
        """Return when all brokers are in the SyncStateSet."""
        self.until("all brokers are in sync", self.is_whole, timeout_s)

    def end_of(self, broker: Member) -> int:
        """Return the end of a broker's log, as the broker reports it. Raises OSError,
        struct.error."""
        table = _json(ask(broker.port, RUNTIME_INFO, {}, timeout_s=ASK_S).body)["table"]
        return int(table["commitLogMaxOffset"])

    def wait_alike(self) -> None:
        """Return when all logs have the same end; no client may send."""
        self.until(
            "the logs end alike", lambda: len({self.end_of(one) for one in self.brokers}) == 1
        )


def _json(body: bytes) -> dict[str, Any]:
    return dict(json.loads(RAW_KEY.sub(r'\1"\2"\3', body.decode()) or "{}"))


def _sync(row: dict[str, Any]) -> Sync:
    inside, outside = row.get("inSyncReplicas") or [], row.get("notInSyncReplicas") or []
    return Sync(
        row.get("masterAddress") or "",
        int(row.get("masterEpoch") or 0),
        int(row.get("syncStateSetEpoch") or 0),
        frozenset(one["brokerAddress"] for one in inside if one["alive"]),
        {one["brokerAddress"]: int(one["brokerId"]) for one in (*inside, *outside)},
    )

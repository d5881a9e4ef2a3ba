"""Groups that a quorum of controllers rules: brokers of either kind, one broker name.

Owns where their members listen, their lives, and what is asked of them with hand-made frames. It
decides nothing. Called by kills.py, test_controllers.py, bench/failover.py and
tests/integration/failover.
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
    Answer,
    Group,
    Kind,
    Ports,
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
"""Characters of each member's last output that an error shows."""
FILE_SIZE = 16 << 20
BROKER = {
    "brokerId": "-1",
    "brokerRole": "SLAVE",
    "brokerIP2": "127.0.0.1",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
}


class NotReadyError(RuntimeError):
    """Something did not come to pass; the text has what the members printed last."""


@dataclass
class Member:
    """A process that dies and comes back at the same place, on the same files."""

    name: str
    folder: Path
    port: int
    begin: Callable[[Path], Process]
    process: Process | None = None
    lives: int = 0
    is_wanted: bool = False
    """Whether it was started, and not ended on purpose since."""

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        """Where its files are, all its lives."""
        return self.folder / "store"

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.process is not None and self.process.running

    def start(self) -> None:
        """One more life; it may take its time to serve."""
        assert not self.running
        self.lives, self.is_wanted = self.lives + 1, True
        self.process = self.begin(self.folder)

    def kill(self) -> None:
        """kill -9; returns when it is dead."""
        assert self.process is not None
        self.is_wanted = False
        self.process.kill()

    def stop(self) -> None:
        """As an operator does."""
        self.is_wanted = False
        if self.process is not None:
            self.process.stop()


@dataclass(frozen=True)
class Sync:
    """What the controllers say of the group."""

    master: str
    """Its address; empty if there is none."""
    master_epoch: int
    set_epoch: int
    in_sync: frozenset[str]
    """The addresses of the SyncStateSet's members that are alive."""
    ids: dict[str, int]
    """By address, of all that are registered."""


@dataclass
class Controlled:
    """See the module."""

    folder: Path
    namesrv_kind: Kind
    controller_kinds: Sequence[Kind]
    broker_kinds: Sequence[Kind]
    settings: dict[str, str] = field(default_factory=dict)
    """More of each broker."""
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
        """All of it."""
        return [self.namesrv, *self.controllers, *self.brokers]

    @property
    def namesrv_address(self) -> str:
        """For clients."""
        return self.namesrv.address

    @property
    def controller_addresses(self) -> str:
        """As brokers and mqadmin are given them."""
        return ";".join(one.address for one in self.controllers)

    @property
    def as_group(self) -> Group:
        """For mqadmin."""
        running = [one.process for one in self.members if one.process is not None]
        return Group(Ports(self.namesrv_port, self.brokers[0].port), running)

    def start(self) -> None:
        """All of it; the first broker is the first master. Returns when all are in sync."""
        self.start_rulers()
        self.brokers[0].start()
        self.until("a first master", lambda: (found := self.sync()) and found.master)
        for broker in self.brokers[1:]:
            broker.start()
        self.wait_whole()

    def start_rulers(self) -> None:
        """Name server and controllers, until one of these leads."""
        for one in (self.namesrv, *self.controllers):
            one.start()
        assert self.namesrv.process is not None
        wait_listening(self.namesrv_port, self.namesrv.process)
        self.until("a leading controller", lambda: self.leader() is not None)

    def stop(self) -> None:
        """Ends what runs, brokers first."""
        for one in reversed(self.members):
            one.stop()

    def abandon(self) -> None:
        """Ends what runs at once: a JVM takes seconds to stop, and its files are not needed."""
        for one in reversed(self.members):
            if one.running:
                one.kill()

    def until(self, what: str, holds: Callable[[], object], timeout_s: float = READY_S) -> None:
        """Returns when something holds. Raises NotReadyError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if holds():
                    return
            except (OSError, struct.error, ValueError):
                pass  # no answer counts as no
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

    # What the controllers say

    def leader(self) -> Member | None:
        """The controller that says it leads."""
        for one in self.controllers:
            answer = self._ask(one.port, METADATA_INFO, {})
            if answer is not None and answer.code == 0 and answer.fields.get("isLeader") == "true":
                return one
        return None

    def to_leader(self, code: int, fields: dict[str, str], body: bytes = b"") -> Answer | None:
        """A request to the controller that leads; None while no controller answers."""
        leader = self.leader()
        return self._ask(leader.port, code, fields, body) if leader else None

    def sync(self) -> Sync | None:
        """The group as its controllers have it; None while none answers."""
        answer = self.to_leader(SYNC_STATE_DATA, {}, json.dumps([BROKER_NAME]).encode())
        if answer is None or answer.code != 0:
            return None
        table = _json(answer.body).get("replicasInfoTable", {})
        return _sync(table[BROKER_NAME]) if BROKER_NAME in table else None

    def elect(self, broker: Member) -> Answer | None:
        """As an administrator asks for it."""
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
    def _ask(port: int, code: int, fields: dict[str, str], body: bytes = b"") -> Answer | None:
        try:
            return ask(port, code, fields, body, timeout_s=ASK_S)
        except (OSError, struct.error, ValueError):
            return None  # it died in the midst of an answer

    # What comes of it

    @property
    def master(self) -> Member | None:
        """The broker that the controllers say is the master."""
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
        """Returns when it is."""
        self.until("all brokers are in sync", self.is_whole, timeout_s)

    def end_of(self, broker: Member) -> int:
        """Where a broker says its log ends. Raises OSError, struct.error."""
        table = _json(ask(broker.port, RUNTIME_INFO, {}, timeout_s=ASK_S).body)["table"]
        return int(table["commitLogMaxOffset"])

    def wait_alike(self) -> None:
        """Returns when all logs end at the same place; no client may send."""
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

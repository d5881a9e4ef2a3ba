"""A master that is separated by the network, from all or from some, under load on both sides.

    python -m pytest -s tests/integration/failover/test_cut_off.py

prints the times; TURBOPUMP_CUTS=5 cuts five times each. Three controllers, three brokers, a name
server, each in a network namespace of its own, the same ones for all kinds of cuts: a group that
has switched is cut as well as a new one, and seven processes start once. One sender stays at the
old master, on its side of the cut, whatever route the name server has.
"""

import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from interop.support.controlled import METADATA_INFO, SYNC_STATE_DATA
from interop.support.groups import BROKER_NAME, CLUSTER, TURBOPUMP, Response
from interop.support.mqadmin import RAW_KEY
from interop.support.processes import Process
from interop.support.senders import (
    AGAIN_S,
    QUEUES,
    SUCCESS,
    Ledger,
    Senders,
    connected,
    now_ms,
    read_all,
    send,
)
from tests.integration.failover.namespaces import Machines, NotPermittedError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

CONTROLLERS = ["c0", "c1", "c2"]
BROKERS = ["b0", "b1", "b2"]
CLIENTS = "clients"
CONTROLLER_PORT, BROKER_PORT, NAMESRV_PORT = 9878, 10911, 9876
RUNTIME_INFO = 28
TOPIC = "CutOff"
READY_S = 120.0
"""Processes that start on a busy machine take their time."""
LOOK_S = 0.05
SENDERS = 4
OLD_SIDE = 1_000_000_000
"""Numbers of the messages that are sent from the master's side begin here."""
UNDER_LOAD_S = 2.0
LEASE_MS = 7200
"""0.8 of controllerHeartBeatTimeoutMills, which is 9 s; counted from a heartbeat before the cut."""
LATE_MS = 1000
"""Margin for a response that is read late.

No other master is elected before 9 s without a heartbeat.
"""
RESETS, CONTROLLERS_RESETS = "all by resets", "the controllers by resets"
TIMES = int(os.environ.get("TURBOPUMP_CUTS", "1"))


class Watched(Ledger):
    """Knows also when acknowledgements came, on either side."""

    old_ms: float = 0.0
    """Time of the last acknowledgement on the old master's side."""
    acks_ms: list[float]
    """Times of acknowledgements on the clients' side, since `begin`."""

    def begin(self) -> None:
        """Begin a cut: forget earlier acknowledgements."""
        self.acks_ms = []

    def outage(self) -> tuple[float, float]:
        """The longest time in which no client got an answer: from when to when."""
        pairs = list(pairwise(sorted(self.acks_ms)))
        return max(pairs, key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))

    def add(self, begun_ms: float, acked_ms: float, place: tuple[int, int], number: int) -> None:
        """Record one more acknowledgement."""
        super().add(begun_ms, acked_ms, place, number)
        if number >= OLD_SIDE:
            self.old_ms = acked_ms
        else:
            self.acks_ms.append(acked_ms)


class Inside(Senders):
    """Senders of another namespace."""

    def __init__(self, machines: Machines, ledger: Ledger) -> None:
        super().__init__(f"{machines.address(CLIENTS)}:{NAMESRV_PORT}", ledger, SENDERS)
        self._machines = machines

    def _run(self, own: int) -> None:
        with self._machines.inside(CLIENTS):
            super()._run(own)


class AtOne:
    """A sender on the side of a broker: it knows no other."""

    def __init__(self, group: "Group", name: str, ledger: Ledger) -> None:
        self._group, self._name, self._ledger = group, name, ledger
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """No more of it."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        address = self._group.address(self._name)
        with self._group.machines.inside(self._name):
            while not self._stopped.is_set():
                try:
                    with connected(address) as connection:
                        while not self._stopped.is_set():
                            number, begun = next(self._group.numbers), now_ms()
                            response = send(connection, self._ledger.topic, number % QUEUES, number)
                            if response.code != SUCCESS:
                                self._ledger.refused(f"old side: {response.code}")
                                break
                            fields = response.fields
                            place = int(fields["queueId"]), int(fields["queueOffset"])
                            self._ledger.add(begun, now_ms(), place, number)
                except (OSError, struct.error) as error:
                    self._ledger.refused(f"old side: {type(error).__name__}")
                time.sleep(AGAIN_S)


@dataclass
class Group:
    """The processes, each on a machine of its own."""

    machines: Machines
    folder: Path
    processes: dict[str, Process] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(OLD_SIDE, 2 * OLD_SIDE)))

    def address(self, name: str) -> str:
        """Address of a node."""
        port = BROKER_PORT if name in BROKERS else CONTROLLER_PORT
        return f"{self.machines.address(name)}:{port if name != CLIENTS else NAMESRV_PORT}"

    def start(self) -> None:
        """Returns when all are in sync."""
        self._begin(CLIENTS, "namesrv", {"listenPort": NAMESRV_PORT})
        peers = ";".join(f"n{at}-{self.address(one)}" for at, one in enumerate(CONTROLLERS))
        for at, one in enumerate(CONTROLLERS):
            self._begin(
                one,
                "controller",
                {
                    "controllerDLegerGroup": "cut",
                    "controllerDLegerPeers": peers,
                    "controllerDLegerSelfId": f"n{at}",
                    "controllerStorePath": self.folder / one / "store",
                },
            )
        for one in BROKERS:
            own = self.machines.address(one)
            self._begin(
                one,
                "broker",
                {
                    "brokerClusterName": CLUSTER,
                    "brokerName": BROKER_NAME,
                    "brokerIP1": own,
                    "brokerIP2": own,
                    "listenPort": BROKER_PORT,
                    "haListenPort": BROKER_PORT + 1,
                    "namesrvAddr": self.address(CLIENTS),
                    "enableControllerMode": "true",
                    "controllerAddr": ";".join(map(self.address, CONTROLLERS)),
                    "storePathRootDir": self.folder / one / "store",
                    "mappedFileSizeCommitLog": 16 << 20,
                },
            )
        self.until("all are in sync", lambda: len(self.in_sync()) == len(BROKERS))

    def _begin(self, name: str, command: str, values: dict[str, Any]) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "node.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        words = self.machines.command(name, [TURBOPUMP, command, "-c", str(config)])
        self.processes[name] = Process(command, words, folder)

    def kill(self) -> None:
        """Kill all processes."""
        for process in self.processes.values():
            if process.running:
                process.kill()

    def until(self, what: str, holds: Callable[[], object], timeout_s: float = READY_S) -> float:
        """Wait until `holds` is true; returns the seconds that it took."""
        begun = time.monotonic()
        while True:
            try:
                if holds():
                    return time.monotonic() - begun
            except (OSError, struct.error, ValueError, KeyError):
                pass  # a controller that does not respond does not count
            dead = [one.tail() for one in self.processes.values() if not one.running]
            assert not dead, "\n".join(dead)
            assert time.monotonic() - begun < timeout_s, f"{what}: {self.controller_metadata()}"
            time.sleep(LOOK_S)

    # Queries, from the clients' side

    def ask(
        self, name: str, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Send one request."""
        with connected(self.address(name)) as connection:
            return connection.call(code, fields or {}, body)

    def controller_metadata(self) -> dict[str, Any]:
        """State of the group at the leading controller; empty while no controller leads."""
        for one in CONTROLLERS:
            try:
                if self.ask(one, METADATA_INFO).fields.get("isLeader") != "true":
                    continue
                response = self.ask(one, SYNC_STATE_DATA, {}, json.dumps([BROKER_NAME]).encode())
            except (OSError, struct.error):
                continue
            if response.code == SUCCESS:
                text = RAW_KEY.sub(r'\1"\2"\3', response.body.decode())
                return dict(json.loads(text)["replicasInfoTable"].get(BROKER_NAME, {}))
        return {}

    def in_sync(self) -> list[str]:
        """Addresses of the set's members."""
        return [
            one["brokerAddress"] for one in self.controller_metadata().get("inSyncReplicas") or []
        ]

    def master(self) -> str:
        """Address of the group's master, by the controllers; empty without a master."""
        found = self.controller_metadata().get("masterAddress")
        return next((one for one in BROKERS if self.address(one) == found), "")

    def known_master(self) -> str:
        """Master, once a leading controller has answered: on a busy machine a request may time out
        after its second without any fault of the group.
        """
        found: list[str] = []

        def asked() -> str:
            found.append(self.master())
            return found[-1]

        self.until("there is a master", asked)
        return found[-1]

    def ends(self) -> set[int]:
        """Ends of the brokers' logs."""
        responses = [self.ask(one, RUNTIME_INFO) for one in BROKERS]
        return {int(json.loads(one.body)["table"]["commitLogMaxOffset"]) for one in responses}


class Groups:
    """Groups, one after the other: the next story never gets the group of a failed one."""

    def __init__(self, machines: Machines, make_folder: Callable[[], Path]) -> None:
        self._machines, self._make_folder = machines, make_folder
        self._group: Group | None = None

    def running(self) -> Group:
        """The group, with all in sync; called on the clients' side."""
        if self._group is None:
            self._group = Group(self._machines, self._make_folder())
            self._group.start()
        return self._group

    def end(self) -> None:
        """No group runs, and no cable is cut."""
        if self._group is not None:
            self._group.kill()
        self._group = None
        self._machines.heal()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines([*CONTROLLERS, *BROKERS, CLIENTS])
    try:
        made.make()
    except NotPermittedError as error:
        pytest.skip(f"network namespaces cannot be used here: {error}")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def groups(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    made = Groups(machines, lambda: tmp_path_factory.mktemp("group"))
    yield made
    made.end()


def from_everybody(group: Group, master: str) -> None:
    """The cable is pulled."""
    group.machines.unplug(master)


def from_controllers(group: Group, master: str) -> None:
    """Replicas, clients and the name server reach it."""
    group.machines.cut(master, CONTROLLERS)


def from_replicas(group: Group, master: str) -> None:
    """The controllers reach it: it stays master, alone."""
    group.machines.cut(master, [one for one in BROKERS if one != master])


def resets_to_all(group: Group, master: str) -> None:
    """Answer connections to the master with resets while its process lives: it is taken for dead at
    once.
    """
    group.machines.reset(master, [one for one in group.machines.names if one != master])


def resets_to_controllers(group: Group, master: str) -> None:
    """Answer connections of controllers with resets, while replicas, clients and the name server
    reach the master.
    """
    group.machines.reset(master, CONTROLLERS)


CUTS = {
    "everybody": from_everybody,
    "controllers": from_controllers,
    "replicas": from_replicas,
    RESETS: resets_to_all,
    CONTROLLERS_RESETS: resets_to_controllers,
}


def play(group: Group, kind: str, ledger: Watched) -> str:
    """Play one cut and its end."""
    group.until("all are in sync", lambda: len(group.in_sync()) == len(BROKERS))
    master = group.known_master()
    old_side = AtOne(group, master, ledger)
    old_side.start()
    try:
        ledger.begin()
        time.sleep(UNDER_LOAD_S)
        cut_ms = now_ms()
        CUTS[kind](group, master)
        if kind == "replicas":
            group.until("the master is alone", lambda: len(group.in_sync()) == 1)
        else:
            group.until("a new master", lambda: group.master() not in ("", master))
        elected_s = (now_ms() - cut_ms) / 1000
        ledger.watch(now_ms())
        group.until("sends get through", lambda: ledger.first_ms is not None)
        time.sleep(UNDER_LOAD_S)
        until_ms, from_ms = ledger.outage()
        if kind == "replicas":
            assert group.known_master() == master
        else:
            late_ms = ledger.old_ms - from_ms
            # Where clients reach the old master to its end, their longest wait may be for another
            # reason.
            is_apart = kind != CONTROLLERS_RESETS
            assert not is_apart or late_ms <= 0, f"two masters acknowledge for {late_ms:.0f} ms"
            stopped_ms = ledger.old_ms - cut_ms
            assert stopped_ms <= LEASE_MS + LATE_MS, f"it acknowledges for {stopped_ms:.0f} ms"
            assert group.known_master() != master
    finally:
        old_side.stop()
    group.machines.heal()
    whole_s = group.until("all are in sync", lambda: len(group.in_sync()) == len(BROKERS))
    what = "alone in the set" if kind == "replicas" else "another master"
    return (
        f"cut off from {kind}: {what} after {elected_s:.2f} s; acknowledged until"
        f" {(until_ms - cut_ms) / 1000:.2f} s and again from {(from_ms - cut_ms) / 1000:.2f} s on,"
        f" on the master's side until {(ledger.old_ms - cut_ms) / 1000:.2f} s;"
        f" all in sync {whole_s:.2f} s after its end"
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", CUTS)
def test_a_master_is_cut_off(machines: Machines, groups: Groups, kind: str) -> None:
    ledger = Watched(f"{TOPIC}-{list(CUTS).index(kind)}")
    ledger.begin()
    senders = Inside(machines, ledger)
    try:
        with machines.inside(CLIENTS):
            group = groups.running()
            senders.start()
            group.until("sends get through", lambda: len(ledger.numbers) > 100)
            for _ in range(TIMES):
                print(play(group, kind, ledger), flush=True)
            senders.stop()
            group.until("logs end alike", lambda: len(group.ends()) == 1)
            found = ledger.compare(read_all(group.address(group.known_master()), ledger.topic))
            print(found, ledger.errors)
            assert (found.lost, found.moved, found.twice) == (0, 0, 0)
    except BaseException:
        groups.end()
        raise
    finally:
        senders.stop()

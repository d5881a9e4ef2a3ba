"""A controller with full tables, and for each of its request codes the largest requests."""

import base64
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Case, Hold, Meter, OtherThread, ask
from tests.unit.controller.test_hostile_names import LEDGER, NUMBERS, World
from turbopump.cli.gc_tuning import GcTuning
from turbopump.controller import events
from turbopump.controller.raft.messages import LIST_MAX
from turbopump.controller.raft.messages import RaftRequestCode as LedgerCode
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode

GROUPS: Final = 2_000
"""Broker groups of the tables."""

_FIELDS = {key: str(value) for key, value in NUMBERS.items()} | {
    "clusterName": "c",
    "brokerName": "b",
    "brokerAddr": "a:1",
    "brokerAddress": "a:1",
    "registerCheckCode": "a:1;7",
    "brokerControllerIdsToClean": "9",
}


class ControllerWalk:
    """A controller that leads alone, with requests for all of its codes."""

    def __init__(self, folder: Path, groups: int = GROUPS) -> None:
        self.meter = Meter()
        self.gc_tuning = GcTuning()
        self.world = World(folder / "store")
        self.disk = OtherThread(self.meter)
        self.world.join()
        for number in range(groups):
            self._join(f"group{number}")
        self.world.driver._disk = self.disk
        gc.collect()
        self.gc_tuning.begin_freezing()

    @property
    def codes(self) -> frozenset[int]:
        """All codes of the controller's dispatch table."""
        return self.world.table.codes

    def ask(self, code: int, case: Case) -> Hold:
        """The longest part of a request."""
        with self.meter.watching():
            return ask(self.meter, self.world.table, self.disk, code, case, self.world.now_ms)

    def cases(self, code: int, attempt: int = 0) -> list[Case]:
        """Requests of a code; each attempt uses names that no earlier attempt used."""
        return [*generic(_FIELDS), *_LARGE[code](self, f"{attempt}_{code}")]

    def close(self) -> None:
        """End the controller."""
        self.gc_tuning.end_freezing()
        self.disk.run()
        self.world.storage.close()

    def _join(self, name: str) -> None:
        tables = self.world.core.tables
        address = f"{name}:1"
        tables.apply_event(events.ApplyBrokerId("c", name, address, f"{address};1", 1))


Made = Callable[[ControllerWalk, str], list[Case]]


def _none(_walk: ControllerWalk, _run: str) -> list[Case]:
    return []


def _json(name: str, value: Any, **more: str) -> Case:
    return Case(name, _FIELDS | more, json.dumps(value).encode())


def _ids(_walk: ControllerWalk, _run: str) -> list[Case]:
    ids = list(range(1_000, 10_000))
    return [_json("9,000 ids", {"syncStateSet": ids, "syncStateSetEpoch": 1})]


def _names(_walk: ControllerWalk, _run: str) -> list[Case]:
    names = [f"group{number}" for number in range(GROUPS)]
    return [
        _json("2,000 groups", names),
        _json("100,000 names", [f"{number}" for number in range(100_000)]),
        Case("beyond", _FIELDS, b"[" + b'"a",' * 500_000 + b'"a"]'),
        Case("just below", _FIELDS, b"[" + b'"a",' * (bodies.LONG.values - 1) + b'"a"]'),
    ]


def _new(_walk: ControllerWalk, run: str) -> list[Case]:
    return [Case("a group more", _FIELDS | {"brokerName": f"n{run}"})]


def _push(walk: ControllerWalk, _run: str) -> list[Case]:
    entry = {"index": 1, "term": 1, "pos": 0, "size": 48, "magic": 1}
    many = LEDGER | {"type": "APPEND", "batchEntry": [entry] * LIST_MAX}
    # A follower trusts the leader of a later term.
    later = {"term": 1 << 40}
    large = base64.b64encode(bytes(11 << 20)).decode()
    one = entry | {"body": large, "size": 48 + (11 << 20)}
    return [
        _json("10,000 entries", many),
        _json("10,000 entries of a leader", many | later),
        _json("an entry of 11 MiB", LEDGER | {"type": "APPEND", "entry": one}),
        _json("indexes", LEDGER | {"indexList": list(range(LIST_MAX))}),
    ]


def _append(_walk: ControllerWalk, _run: str) -> list[Case]:
    body = base64.b64encode(bytes(64 << 10)).decode()
    return [_json("64 KiB", LEDGER | {"body": body})]


def _snapshot(walk: ControllerWalk, _run: str) -> list[Case]:
    data = base64.b64encode(walk.world.core.snapshot()).decode()
    body = LEDGER | {"lastIncludedIndex": 1 << 40, "lastIncludedTerm": 1, "data": data}
    large = base64.b64encode(b"[" + b"0," * (5 << 20) + b"0]").decode()
    return [
        _json("the tables", body),
        _json("11 MiB of values", body | {"data": large, "term": 1 << 41}),
    ]


def _config(_walk: ControllerWalk, _run: str) -> list[Case]:
    lines = b"".join(b"key%05d=v\n" % number for number in range(1_900))
    return [Case("unknown keys", _FIELDS, lines)]


def _clean(_walk: ControllerWalk, _run: str) -> list[Case]:
    ids = ";".join(map(str, range(300)))
    return [Case("300 ids", _FIELDS | {"brokerControllerIdsToClean": ids})]


_LARGE: Final[dict[int, Made]] = {
    RequestCode.BROKER_HEARTBEAT: _new,
    RequestCode.CONTROLLER_GET_METADATA_INFO: _none,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _ids,
    RequestCode.CONTROLLER_ELECT_MASTER: _none,
    RequestCode.CONTROLLER_REGISTER_BROKER: _new,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: _none,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _names,
    RequestCode.CLEAN_BROKER_DATA: _clean,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _new,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _new,
    RequestCode.UPDATE_CONTROLLER_CONFIG: _config,
    RequestCode.GET_CONTROLLER_CONFIG: _none,
    LedgerCode.METADATA: _none,
    LedgerCode.APPEND: _append,
    LedgerCode.GET: _push,
    LedgerCode.VOTE: _push,
    LedgerCode.HEART_BEAT: _push,
    LedgerCode.PUSH: _push,
    LedgerCode.LEADERSHIP_TRANSFER: _push,
    LedgerCode.INSTALL_SNAPSHOT: _snapshot,
}

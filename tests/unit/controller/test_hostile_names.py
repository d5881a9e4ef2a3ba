"""Names that are long or lead elsewhere, through every request code of a controller.

The tests iterate over codes, not over handlers, so that they include new codes. Raft, its files,
its driver and the state machine are the real ones.
"""

import base64
import json
import logging
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.test_driver import HeldDisk

from turbopump.controller import events, handlers
from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import ControllerCore
from turbopump.controller.driver import (
    CLIENT_BODY_MAX,
    CLIENT_OPEN_MAX,
    LEDGER_CODES,
    Driver,
    DriverDeps,
)
from turbopump.controller.handlers import TEXTS_MAX, Controller
from turbopump.controller.liveness import CONNECTION_MAX, NAMES_MAX
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.messages import VALUES_MAX
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.storage import RaftStorage
from turbopump.controller.state import NAME_MAX
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.java_properties import PropertiesError, Property

LONG = "n" * 20_000
HOSTILE = [
    "..",
    "../../victim",
    "/",
    "/victim",
    "",
    "\0",
    "..\0",
    "a#b",
    "a\nb",
    "\ud800",
    "主" * 256,
    LONG,
]
NUMBERS = {"brokerId": 1, "appliedBrokerId": 1, "masterBrokerId": 1, "masterEpoch": 1, "epoch": 1}
FLAGS = [{}, {"unclean": "true"}, {"damaged": "true"}, {"designateElect": "true"}]
LEDGER = {
    "group": "g",
    "localId": "n1",
    "remoteId": "n0",
    "leaderId": "n0",
    "term": 1,
    "transferId": "n0",
    "transfereeId": "n1",
}
TEXTS = {"group", "localId", "remoteId", "leaderId", "transferId", "transfereeId"}


class NoLink:
    """A connection on which nothing is sent in these tests."""

    def close(self) -> None: ...

    def after_answers(self, callback: Any) -> None:
        callback()


class World:
    """A controller that is the only member and leads; its disk works when the test calls it."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 1_000
        self.disk = HeldDisk()
        self.config = ControllerConfig(store_path=str(folder), group="g")
        storage = RaftStorage(RealFiles(), self.config.folder)
        options = RaftOptions(self_id="n0", peers={"n0": "h:1"}, group="g", snapshot_threshold=20)
        raft = Raft(options, storage.open(), random.Random(1), self.now_ms)
        unused: Any = None
        self.driver = Driver(
            DriverDeps(
                raft=raft,
                storage=storage,
                disk=self.disk,
                calls=unused,
                refuses=unused,
                now_ms=lambda: self.now_ms,
            )
        )
        self.core = ControllerCore(self.config, self.driver)
        self.parts = Controller(self.config, lambda: self.now_ms, self._save)
        self.parts.driver, self.parts.core = self.driver, self.core
        self.table = Dispatcher()
        handlers.register(self.table, self.parts)
        self.peer = Peer("10.0.0.1:9", b"", NoLink())  # type: ignore[arg-type]
        self.storage = storage
        self.saved: list[Property] = []
        self.driver.begin_member(self.core, self.now_ms)
        for _ in range(100):
            self.pass_time(50)
        assert self.core.is_leading

    def _save(self, properties: list[Property]) -> Deferred[OSError | None]:
        self.saved += properties
        done: Deferred[OSError | None] = Deferred()
        done.resolve(None)
        return done

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.parts.tick()
        self.settle()

    def settle(self) -> None:
        while self.disk.work:
            self.disk.finish_one()

    def begin(self, code: int, body: bytes = b"", **fields: object) -> Any:
        """Send a request; returns the response or its promise, while the disk does not work."""
        request = new_request(code, body=body, fields={key: str(fields[key]) for key in fields})
        return self.table.dispatch(request, self.peer, self.now_ms)

    def ask(self, code: int, body: bytes = b"", **fields: object) -> Command | None:
        """The response as a client decodes it; None while it is pending."""
        response = self.begin(code, body, **fields)
        response = run_to_result(response) if isinstance(response, Generator) else response
        self.settle()
        if isinstance(response, Deferred):
            response = response.value if response.done else None
        return None if response is None else decode(b"".join(encode(response)))

    def join(self) -> None:
        """A broker of the group `b`, as one of RocketMQ comes."""
        names = {"clusterName": "c", "brokerName": "b", "brokerId": 1}
        apply = {"appliedBrokerId": 1, "registerCheckCode": "a:1;7"}
        for code, fields in (
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, apply),
            (RequestCode.CONTROLLER_REGISTER_BROKER, {"brokerAddress": "a:1"}),
            (RequestCode.BROKER_HEARTBEAT, {"brokerAddr": "a:1"}),
            (RequestCode.CONTROLLER_ELECT_MASTER, {}),
        ):
            response = self.ask(code, **(names | fields))
            assert response is not None and response.code == 0, (code, response)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A controller, with a folder beside its own."""
    (tmp_path / "victim").mkdir()
    found = World(tmp_path / "own" / "store")
    found.join()
    yield found
    found.storage.close()


def outside(root: Path) -> set[str]:
    """Every file and folder outside of the controller's."""
    paths = (str(path.relative_to(root)) for path in root.rglob("*"))
    return {path for path in paths if not path.startswith("own/store/")}


def headers_of(name: str) -> Iterator[dict[str, object]]:
    """Headers with this text in all members, and with it in each single member."""
    good = {
        "brokerAddr": "a:1",
        "brokerAddress": "a:1",
        "brokerControllerIdsToClean": "7",
        "brokerName": "b",
        "clusterName": "c",
        "registerCheckCode": "a:1;7",
    }
    assert good.keys() == TEXTS_MAX.keys()
    for flags in FLAGS:
        yield NUMBERS | flags | dict.fromkeys(good, name)
        for key in good:
            yield NUMBERS | good | flags | {key: name}
            yield NUMBERS | good | {"brokerId": 9, "appliedBrokerId": 2} | flags | {key: name}


def bodies_of(code: int, name: str) -> Iterator[bytes]:
    """Bodies with this text in all its possible places; and an empty body."""
    yield b""
    if code in LEDGER_CODES:
        inner = events.encode([events.ApplyBrokerId(name, name, name, name, 1)])
        outer = {"body": base64.b64encode(inner).decode(), "data": base64.b64encode(inner).decode()}
        yield dumped(LEDGER | dict.fromkeys(TEXTS, name))
        for key in ("", *sorted(TEXTS)):
            yield dumped(LEDGER | outer | {key: name})
    elif code == RequestCode.UPDATE_CONTROLLER_CONFIG:
        for key in (*ControllerConfig().values_as_text(), name):
            yield f"{key}={name}\n".encode(errors="surrogatepass")
    else:
        yield dumped([name, "b"])
        yield dumped({"syncStateSet": [name], "syncStateSetEpoch": name})


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def kept(world: World) -> Iterator[str]:
    """Every text of a peer that the state machine keeps."""
    for group in world.core.tables.groups.values():
        yield from (group.cluster_name, group.broker_name)
        for one in group.replicas.values():
            yield from (one.address, one.check_code)
    yield from world.core.tables.retired
    beats = world.core.heartbeats
    for table in (beats._heard, beats._closed, beats._silent):
        for cluster, name, _ in table:
            yield from (cluster, name)
    yield from world.core._attention


def test_no_name_in_any_request_is_a_path_or_is_kept_long(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, config = outside(tmp_path), world.config.values_as_text()
    for code in sorted(world.table.codes):
        ledger = code in LEDGER_CODES or code == RequestCode.UPDATE_CONTROLLER_CONFIG
        for name in HOSTILE:
            for body in bodies_of(code, name):
                for fields in [NUMBERS] if ledger else headers_of(name):
                    response = world.ask(code, body, **fields)
                    assert response is not None or code == 51005, (code, name[:20], fields)
        world.pass_time(100)
        assert outside(tmp_path) == before, code
        assert all(len(text) <= NAME_MAX for text in kept(world)), code
        thrown = [line for line in caplog.records if line.exc_info or line.levelno > logging.ERROR]
        assert not thrown, (code, thrown)
    changed = {key for key, text in world.config.values_as_text().items() if text != config[key]}
    assert not changed & {"controllerStorePath", "configStorePath", "controllerDLegerSelfId"}
    for group in world.core.tables.groups.values():
        replicas = group.replicas.values()
        texts = [text for one in replicas for text in (one.address, one.check_code)]
        assert all(map(str.isprintable, [group.cluster_name, group.broker_name, *texts]))
    response = world.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName="b")
    assert response is not None and response.code == 0, "it goes on"


@pytest.mark.parametrize("flag", ["unclean", "damaged"])
def test_the_last_life_of_a_long_name_is_not_kept(world: World, flag: str) -> None:
    fields = {"brokerId": 1, "brokerAddress": "a", "clusterName": "c", flag: "true"}
    response = world.ask(RequestCode.CONTROLLER_REGISTER_BROKER, brokerName=LONG, **fields)
    assert response is not None and response.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert LONG not in set(kept(world))


def test_no_long_text_waits_for_a_slow_disk(world: World) -> None:
    """Waiting requests are bounded in bytes: 1,024 requests of 16 MiB would need 16 GiB."""
    fields = {"clusterName": "c", "appliedBrokerId": 1, "registerCheckCode": "a;1"}
    first = world.begin(RequestCode.CONTROLLER_APPLY_BROKER_ID, brokerName="other", **fields)
    assert isinstance(first, Deferred) and not first.done
    for code in sorted(world.table.codes - LEDGER_CODES - {1009, 1010}):
        for name, most in TEXTS_MAX.items():
            response = answered(world.begin(code, **{name: "1" * (most + 1)}))
            assert response.code == ResponseCode.CONTROLLER_INVALID_REQUEST, (code, name)
        response = answered(world.begin(code, b" " * (2 << 20) + b"{}"))
        assert response.code == ResponseCode.CONTROLLER_INVALID_REQUEST, code
    body = base64.b64encode(bytes(CLIENT_BODY_MAX + 1)).decode()
    response = answered(finished(world.begin(50001, dumped(LEDGER | {"body": body}))))
    assert "an entry over" in (response.remark or "")


def test_a_client_of_the_log_appends_an_entry_of_a_mebibyte(world: World) -> None:
    response = world.ask(50001, dumped(LEDGER | {"body": entry_of(1 << 20)}))
    world.pass_time(50)
    assert response is not None and response.code == 200, response
    parsed = json.loads(bytes(response.body))  # type: ignore[arg-type]
    assert (parsed["code"], parsed["index"] >= 0) == (200, True), parsed


def test_the_sum_of_the_entries_that_wait_is_bounded(world: World) -> None:
    """The disk does not work, so that each entry stays pending."""
    large, waiting, refused = entry_of(3 << 20), [], []
    for _ in range(CLIENT_OPEN_MAX // (3 << 20) + 2):
        response = finished(world.begin(50001, dumped(LEDGER | {"body": large})))
        (refused if isinstance(response, Command) else waiting).append(response)
    assert len(waiting) == CLIENT_OPEN_MAX // (3 << 20)
    assert {one.code for one in refused} == {ResponseCode.SYSTEM_BUSY}
    for _ in range(20):
        world.settle()
        world.pass_time(50)
    assert all(one.done for one in waiting)
    response = finished(world.begin(50001, dumped(LEDGER | {"body": large})))
    assert isinstance(response, Deferred), "answered requests no longer count"


def test_an_entry_with_many_values_is_refused_before_objects_are_made(world: World) -> None:
    text = b"\0\2" + b"{" + b'"a":[' + b"1," * 20_000 + b"1]}"
    body = base64.b64encode(text).decode()
    response = world.ask(50001, dumped(LEDGER | {"body": body}))
    assert response is not None and "values" in (response.remark or "")


def finished(response: Any) -> Any:
    """The response to a request that is handled in steps."""
    return run_to_result(response) if isinstance(response, Generator) else response


def entry_of(size: int) -> str:
    """An event as a controller of RocketMQ writes it, with a member that Turbopump ignores."""
    members = {
        "brokerAddress": "10.0.0.7:1", "brokerName": "padded", "clusterName": "C",
        "newBrokerId": 1, "registerCheckCode": "10.0.0.7:1;1", "padding": "x" * size,
    }  # fmt: skip
    return base64.b64encode(b"\0\2" + dumped(members)).decode()


def test_long_names_are_refused_before_objects_are_made(world: World) -> None:
    many = [{}] * (VALUES_MAX // 2 + 1)
    for code in sorted(LEDGER_CODES):
        response = answered(world.begin(code, dumped(LEDGER | {"x": many})))
        assert response.code == 1 and " over " in (response.remark or "")
    response = answered(world.begin(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, dumped(many)))
    assert response.code == 1 and "BadBody" in (response.remark or "")


def test_heartbeats_are_bounded_by_the_bytes_of_their_names(world: World) -> None:
    name = "主" * (NAME_MAX - 6)
    fields = {"brokerAddr": "a", "clusterName": name, "brokerId": 1}
    codes = []
    peers = []
    for number in range(NAMES_MAX // 2_000 + 2):
        if number % CONNECTION_MAX == 0:
            world.peer = Peer("10.0.0.1:9", b"", NoLink())  # type: ignore[arg-type]
            peers.append(world.peer)
        response = world.begin(
            RequestCode.BROKER_HEARTBEAT, brokerName=f"{name}{number:06}", **fields
        )
        codes.append(answered(response).code)
    assert codes[0] == 0 and codes[-1] == ResponseCode.SYSTEM_BUSY
    registered = {"clusterName": "c", "brokerName": "b", "brokerId": 1, "brokerAddr": "a:1"}
    response = world.begin(RequestCode.BROKER_HEARTBEAT, **registered)
    assert answered(response).code == 0, "a registered broker is not refused for made-up names"
    for peer in peers:
        world.parts.on_closed(world.parts.number_of(peer))
    response = world.begin(RequestCode.BROKER_HEARTBEAT, brokerName="x", **fields)
    assert answered(response).code == 0, "closed connections no longer count"


def answered(response: Any) -> Command:
    """A response that is available at once."""
    if isinstance(response, Deferred):
        assert response.done
        response = response.value
    assert isinstance(response, Command)
    return response


def test_no_path_of_the_configuration_is_a_peers() -> None:
    for key in ("controllerStorePath", "configStorePath", "controllerDLegerSelfId"):
        config = ControllerConfig()
        with pytest.raises(PropertiesError):
            config.accepted_changes([Property(key, "../../victim")])

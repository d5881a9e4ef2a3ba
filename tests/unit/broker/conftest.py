"""A whole broker without sockets, threads or a clock: the real parts around a real store."""

import itertools
import json
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.admins import Admin, connect, consumer, notified
from tests.unit.broker.pop.poppers import Popper
from tests.unit.links import WrittenDown

from turbopump.broker.assembly import BrokerRuntime, make_broker, request_table
from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.escape.topic_masters import Neighbour
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.message_id import UniqueIds

START_MS = 1_700_000_000_000


def offset_json(table: OffsetTable) -> Any:
    """The content that consumerOffset.json would have now."""
    return json.loads(b"".join(table.take_content()()))


class SteeredJob:
    """A disk task that completes when the test calls `finish`."""

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._work: Callable[[], Any] | None = work
        self._done = done

    def wait_and_report(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        try:
            result = work()
        except OSError as error:
            result = error
        self._done(result)


class SteeredDisk:
    """A disk that works at once, except between `hold` and `release`; log files are always made at
    once."""

    def __init__(self) -> None:
        self._held: list[SteeredJob] | None = None

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> SteeredJob:
        job = SteeredJob(work, done)
        makes_file = getattr(getattr(work, "func", None), "__name__", "") == "_create"
        if self._held is None or makes_file:
            job.wait_and_report()
        else:
            self._held.append(job)
        return job

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        while self._held:
            self._held.pop(0).wait_and_report()
        self._held = None

    def close(self) -> None:
        self.release()


class World:
    """A broker, clients, and a clock that the test advances."""

    def __init__(self, folder: Path, properties: str) -> None:
        self.text = f"storePathRootDir={folder}\nbrokerIP1=127.0.0.1\n{_SMALL}{properties}"
        self.config: BrokerConfig
        self.config, warnings = load_config(self.text)
        known = "lockInStrictMode", "authorizationEnabled"
        assert all(any(key in warning for key in known) for warning in warnings)
        self.now_ms = START_MS
        self._set_ms = 0
        self.ticks: list[Callable[[int], None]] = []
        self.disk = SteeredDisk()
        self.config_disk = SteeredDisk()
        self.files = ConfigFiles(RealFiles(), f"{folder}/config")
        self._ports = itertools.count(50_000)
        self._opaques = itertools.count(1)
        self.saved: list[list[tuple[str, str]]] = []
        self.save_error: OSError | None = None
        self._behind: list[Callable[[], None]] = []
        self.soon: Callable[[Callable[[], None]], object] = self._behind.append
        """Callbacks for the end of the loop's turn; tests without connections leave them alone."""
        self.called: list[tuple[str, Command, Deferred[Command | str]]] = []
        """Requests to other nodes: (address, request, pending response)."""
        self.neighbours: list[Neighbour] = []
        """Masters of the same process."""
        self.open()

    def call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Send a request to another node; the test resolves it."""
        later: Deferred[Command | str] = Deferred()
        self.called.append((address, request, later))
        return later

    def open(self) -> None:
        """Start the broker for the first time, or again."""
        config, files = self.config, self.files
        saver = TableSaver(files, self.config_disk)
        topics = TopicTable(config, saver)
        topics.load()
        store = Store.open(
            RealFiles(),
            config.store,
            self.disk,
            self.now_ms,
            delay_levels_ms=config.delay_levels_ms,
            is_batch_topic=topics.is_batch,
        )
        self.broker = make_broker(config, store, topics, self._runtime(saver))
        self.broker.address = "127.0.0.1:10911"
        self.broker.store_host = pack_host(self.broker.address)
        self.table = request_table(self.broker)
        self.client = self.peer()

    def _runtime(self, saver: TableSaver) -> BrokerRuntime:
        return BrokerRuntime(
            files=self.files,
            store_files=RealFiles(),
            disk=self.disk,
            saver=saver,
            random=random.Random(1),
            unique_ids=UniqueIds(b"\x7f\0\0\1", 1, 2, lambda: self.now_ms),
            wall_ms=lambda: self.now_ms,
            steady_ms=lambda: self.steady_ms,
            native_clock=lambda: self.now_ms,
            timer_slots=40_000,  # 11 hours: RocketMQ's wheel has 38 MB
            call_soon=lambda work: self.soon(work),
            register_topics=lambda names: Deferred(),
            save_config=self.save_config,
            call=lambda address, request, timeout_ms: self.call(address, request, timeout_ms),
            neighbours=lambda: self.neighbours,
        )

    def save_config(self, changed: Sequence[Property]) -> Deferred[OSError | None]:
        """Record the changes as the node does, without a file."""
        self.broker.store.config.adopt_live_values(self.config.store)
        self.saved.append([(item.key, item.value) for item in changed])
        later = Deferred[OSError | None]()
        later.resolve(self.save_error)
        return later

    @property
    def steady_ms(self) -> int:
        """Time of the monotonic clock, in ms."""
        return self.now_ms - self._set_ms

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock forward, or back."""
        self.now_ms += by_ms
        self._set_ms += by_ms

    def peer(self) -> Peer:
        """Connect a new client."""
        address = f"127.0.0.1:{next(self._ports)}"
        return Peer(address, pack_host(address), WrittenDown())

    def dispatch(self, request: Command, peer: Peer | None = None) -> Command | Deferred:
        """Dispatch a request; returns the response or the promise of it."""
        request.opaque = next(self._opaques)
        response = self.table.dispatch(request, peer or self.client, self.now_ms)
        if isinstance(response, Generator):
            response = run_to_result(response)
        assert response is not None
        return response

    def turn(self) -> None:
        """End the loop's turn: run the deferred callbacks."""
        behind, self._behind[:] = list(self._behind), []
        for work in behind:
            work()

    def ask(
        self, code: int, header: object = None, body: bytes = b"", peer: Peer | None = None
    ) -> Command:
        """Dispatch a request that is answered at once; returns the response."""
        request = new_request(code, header, body)
        response = self.dispatch(request, peer)
        if isinstance(response, Deferred):
            if not response.done:
                self.turn()
            assert response.done, "the answer is still to come"
            response = response.value
        assert isinstance(response, Command)
        assert response.is_response
        assert response.opaque == request.opaque
        return response

    def ask_fields(self, code: int, fields: dict[str, Any]) -> Command:
        """Like `ask`, with raw extFields; `version` in `fields` sets the client's version."""
        request = new_request(code, fields={**fields})
        request.version = request.fields.pop("version", request.version)  # type: ignore[assignment]
        response = self.dispatch(request)
        if isinstance(response, Deferred):
            if not response.done:
                self.turn()
            assert response.done, "the answer is still to come"
            response = response.value
        return response

    def pass_time(self, duration_ms: int, step_ms: int = 100) -> None:
        """Advance the clock as the node does: a tick every 100 ms."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + step_ms, end_ms)
            self.broker.store.tick(self.now_ms)
            for tick in self.ticks:
                tick(self.steady_ms)
            self.broker.held_pulls.tick(self.steady_ms)
            self.broker.assignments.tick()
            while self.broker.delay.step(self.now_ms):
                pass
            while self.broker.transaction_checks.step(self.now_ms):
                pass
            self.run_timers()
            while self.broker.pop.step(self.now_ms):
                pass
            self.broker.pop.waiters.tick(self.steady_ms)
            self.broker.waiting.step(self.steady_ms)

    def run_timers(self) -> None:
        """Deliver all due timers."""
        while self.broker.timers.step(self.now_ms, self.steady_ms) == 0:
            pass

    def close(self) -> None:
        """Shut the broker down cleanly."""
        self.disk.release()
        self.broker.store.close(self.now_ms)
        self.broker.delay.save()
        self.broker.half_counts.save(self.now_ms)
        self.broker.timers.close()
        self.broker.offsets.save()


_SMALL = (
    "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=20000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=10000\n"
)


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes a World with properties of its own; closed at the end."""
    made: list[World] = []

    def make(properties: str = "", folder: str = "store") -> World:
        world = World(tmp_path / folder, properties)
        made.append(world)
        return world

    yield make
    for world in made:
        world.disk.release()
        world.broker.store.close(world.now_ms)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A World with RocketMQ's defaults and small files."""
    return make_world()


@pytest.fixture
def popper(world: World) -> Popper:
    """A consumer of group g that pops topic T of the world."""
    return Popper(world)


@pytest.fixture
def make_admin(make_world: Callable[..., World]) -> Callable[..., Admin]:
    """Makes a broker with properties of its own."""

    def make(properties: str = "", folder: str = "store") -> Admin:
        return Admin(make_world(properties, folder))

    return make


@pytest.fixture
def admin(make_admin: Callable[..., Admin]) -> Admin:
    """A broker with RocketMQ's defaults and small files."""
    return make_admin()


@pytest.fixture(scope="session")
def kit() -> Any:
    """Helpers for tests without a broker: connect(), consumer(), notified()."""
    return SimpleNamespace(connect=connect, consumer=consumer, notified=notified)

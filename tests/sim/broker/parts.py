"""The parts of a broker over a simulated disk, in one life of its process.

Owns their making, as a process makes them, and the saving of their files. Clocks, requests to other
nodes and the loop's turns belong to the machine; periods and invariants must never be known here.
"""

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from tests.shortcuts.addresses import pack_host
from tests.sim.disk import SimDisk
from tests.sim.work import QueuedDisk
from turbopump.broker.assembly import BrokerRuntime, make_broker, request_table
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.topic_masters import Call
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.store import Store
from turbopump.net.transport.dispatcher import Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.command import Command
from turbopump.net.wire.message_id import UniqueIds

ROOT = "/store"
ADDRESS = "127.0.0.1:10911"
Clock = Callable[[], int]


def open_store(
    config: BrokerConfig, disk: SimDisk, work: QueuedDisk, wall_ms: int, steady_ms: int
) -> Store:
    """Open a store with the delay levels of the broker's configuration."""
    levels_ms = config.delay_levels_ms
    return Store.open(
        disk, config.store, work, wall_ms, steady_ms=steady_ms, delay_levels_ms=levels_ms
    )


def not_answered(_address: str, _request: Command, _timeout_ms: int) -> Deferred[Command | str]:
    """A request to a node that does not exist."""
    return Deferred()


class SimParts:
    """Parts of a broker: `context`, the table of its requests, and its files."""

    def __init__(
        self,
        config: BrokerConfig,
        open_store: Callable[[], Store],
        disk: SimDisk,
        work: QueuedDisk,
        rng: random.Random,
        *,
        wall_ms: Clock,
        steady_ms: Clock,
        call_soon: Callable[[Callable[[], None]], None],
        call: Call = not_answered,
        address: str = ADDRESS,
        timer_slots: int = 8_000,
        is_registered: bool = False,
    ) -> None:
        """Make the parts over the store that `open_store` opens on `disk`; `work` are its threads.
        `call` asks another node; `is_registered`: registrations of new topics end at once.
        """
        self._work = work
        self._saving: set[str] = set()
        self.files = ConfigFiles(disk, f"{ROOT}/config")
        saver = TableSaver(self.files, work)
        self.topics = TopicTable(config, saver)
        self.topics.load()
        runtime = BrokerRuntime(
            files=self.files,
            store_files=disk,
            disk=work,
            saver=saver,
            random=rng,
            unique_ids=UniqueIds(b"\x7f\0\0\1", 1, 2, wall_ms),
            wall_ms=wall_ms,
            steady_ms=steady_ms,
            native_clock=wall_ms,
            call_soon=call_soon,
            register_topics=lambda _: Deferred.resolved(None) if is_registered else Deferred(),
            save_config=lambda _: Deferred(),
            call=call,
            timer_slots=timer_slots,
        )
        self.context = make_broker(config, open_store(), self.topics, runtime)
        self.context.address = address
        self.context.store_host = pack_host(ADDRESS)
        self._wall_ms = wall_ms
        self.table = request_table(self.context)

    def dispatch(self, request: Command, peer: Peer) -> Response:
        """Handle a request, with all its steps at once."""
        response: Any = self.table.dispatch(request, peer, self._wall_ms())
        return run_to_result(response) if isinstance(response, Generator) else response

    @property
    def is_saving_offsets(self) -> bool:
        """Whether a write of the offsets has begun and not ended."""
        return OFFSETS_FILE in self._saving

    def save_offsets(self, saved: Callable[[], None] = lambda: None) -> None:
        """Write the offsets if some have changed; `saved` runs once they are durable."""
        offsets = self.context.offsets
        steps = offsets.take_changes()
        if steps is None:
            return
        *_, content = steps
        replace = partial(self.files.replace, OFFSETS_FILE, content)
        self._submit(OFFSETS_FILE, replace, offsets.save_failed, saved)

    def save_table(
        self, name: str, take: Callable[[], dict[str, Any] | None], failed: Callable[[], None]
    ) -> None:
        """Write a small table if it has changed, as broker/lifecycle/periodic.py does it."""
        content = None if name in self._saving else take()
        if content is not None:
            self._submit(name, partial(self.files.save, name, content), failed)

    def _submit(
        self,
        name: str,
        write: Callable[[], object],
        failed: Callable[[], None],
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._saving.add(name)

        def ended(result: object) -> None:
            self._saving.discard(name)
            (failed if isinstance(result, OSError) else saved)()

        self._work.submit(write, ended)

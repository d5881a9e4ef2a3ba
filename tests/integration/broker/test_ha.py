"""Replication over real sockets: a pair in one process, and processes that are killed."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from interop.support.ports import free_ports

from turbopump.broker.config.replication_config import BrokerRole
from turbopump.broker.ha import sockets
from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.service import HaService
from turbopump.broker.ha.sockets import Sockets
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, NewMessage, PutStatus

pytestmark = pytest.mark.integration

HOST = "127.0.0.1"
TIMEOUT_S = 60
PAIR = frozenset({1, 2})


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Node:
    """A store and its part in replication, on the running loop."""

    def __init__(self, folder: Path, options: HaOptions, mode: FlushMode) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.disk = DiskThreads(lambda report: loop.call_soon_threadsafe(report))
        config = StoreConfig(
            root=str(folder),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20 * 5000,
            max_hash_slot_num=1000,
            max_index_num=10_000,
            flush_disk_type=mode,
        )
        self.store = Store.open(
            RealFiles(), config, self.disk, wall_ms(), steady_ms=self.steady_ms()
        )
        self.log = self.store.as_replicated(wall_ms(), plain=not options.has_elections)
        self.service = HaService(options, self.log, RealFiles(), self.disk, wall_ms, self.steady_ms)
        self._ticking = loop.create_task(self._tick())

    def steady_ms(self) -> int:
        return round(self.loop.time() * 1000)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.service.port}"

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.store.tick(wall_ms(), self.steady_ms())
            if self.service.port:
                self.service.tick()

    async def close(self) -> None:
        self._ticking.cancel()
        await self.service.stop()
        self.store.close(wall_ms())
        self.disk.close()

    def send(self, body: bytes) -> "asyncio.Future[PutStatus]":
        """Send as a producer does: again, while the next log file is being made."""
        future: asyncio.Future[PutStatus] = self.loop.create_future()
        self._put(body, future)
        return future

    def _put(self, body: bytes, future: "asyncio.Future[PutStatus]") -> None:
        if self.service.term is None:
            # It was demoted while the next log file was being made.
            future.set_result(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        need = self.service.term.copies_needed()
        assert need is not None
        appended = self.store.append(NewMessage("T", 0, body), wall_ms())
        if appended.status is PutStatus.OS_PAGE_CACHE_BUSY:
            self.loop.call_later(0.005, self._put, body, future)
            return
        if appended.status is not PutStatus.PUT_OK:
            future.set_result(appended.status)
            return
        self.store.when_safe(appended, need).then(future.set_result)
        self.service.on_log_grown()

    def files(self) -> dict[str, bytes]:
        """The log up to its end, and the epoch file."""
        root = Path(self.store.config.root)
        log = b"".join(
            bytes(view) for view in self.log.view(self.log.min, self.log.end - self.log.min)
        )
        epochs = root / "epochFileCheckpoint"
        return {"log": log, "epochs": epochs.read_bytes() if epochs.exists() else b""}


@contextlib.asynccontextmanager
async def nodes(folder: Path, mode: FlushMode, *options: HaOptions) -> AsyncIterator[list[Node]]:
    made = [Node(folder / str(n), one, mode) for n, one in enumerate(options, 1)]
    for node in made:
        await node.service.start()
    try:
        yield made
    finally:
        for node in made:
            await node.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def led(node: Node, epoch: int, members: frozenset[int]) -> None:
    """Make a node the master of an epoch, and wait until the epoch is saved."""
    node.service.to_master(epoch, members, epoch)
    await until(lambda: node.service.is_master)


def switching(number: int, mode: FlushMode) -> HaOptions:
    return HaOptions(
        enable_controller_mode=True,
        own_id=number,
        bind_address=HOST,
        ha_listen_port=0,
        all_ack_in_sync_state_set=True,
        sync_flush=mode is FlushMode.SYNC_FLUSH,
    )


@pytest.mark.parametrize("mode", FlushMode)
def test_a_pair_switches_under_load(tmp_path: Path, mode: FlushMode) -> None:
    async def scenario() -> None:
        async with nodes(tmp_path, mode, switching(1, mode), switching(2, mode)) as (one, two):
            await led(one, 1, PAIR)
            two.service.to_replica(one.address, 1)
            master, replica = one, two
            promised: list[bytes] = []
            running = True

            async def load() -> None:
                number = 0
                while running:
                    bodies = [b"%d " % (number + n) * 100 for n in range(50)]
                    number += 50
                    futures = [master.send(body) for body in bodies]
                    for body, future in zip(bodies, futures, strict=True):
                        if await future is PutStatus.PUT_OK:
                            promised.append(body)

            loading = asyncio.create_task(load())
            for epoch in range(2, 12):
                before = len(promised)
                await until(lambda before=before: len(promised) > before + 200)
                await led(replica, epoch, PAIR)
                master.service.to_replica(replica.address, epoch)
                master, replica = replica, master
            before = len(promised)
            await until(lambda: len(promised) > before + 200)
            running = False
            await loading
            await until(lambda: replica.log.end == master.log.end == replica.log.confirm)
            assert one.log.epochs == two.log.epochs
            assert master.log.epochs.last_epoch == 11
            # RocketMQ's file follows the line that recorded the last epoch.
            await until(lambda: one.files() == two.files())
            store, at, read = replica.store, 0, []
            while at < store.max_queue_offset("T", 0):
                for unit in store.units("T", 0, at, 1000):
                    record = store.record_of(unit)
                    assert record is not None
                    read.append(bytes(record.body))
                    at += 1
            assert len(promised) > 2000
            assert set(promised) <= set(read)
            assert len(read) == len(set(read))

    uvloop.run(scenario())


def test_a_plain_pair(tmp_path: Path) -> None:
    async def scenario() -> None:
        mode = FlushMode.ASYNC_FLUSH
        first = HaOptions(
            broker_role=BrokerRole.SYNC_MASTER,
            bind_address=HOST,
            ha_listen_port=0,
            in_sync_replicas=2,
            slave_timeout_ms=30_000,  # 5,000 sends at once, on a machine that may be busy
        )
        second = HaOptions(broker_role=BrokerRole.SLAVE, bind_address=HOST, ha_listen_port=0)
        async with nodes(tmp_path, mode, first, second) as (master, slave):
            slave.service.set_master_address(master.address)
            # A slave with nothing begins with the last file.
            term = master.service.term
            assert term is not None
            await until(lambda: any(one.machine.next >= 0 for one in term.links.values()))
            sent = [master.send(b"%d" % number * 1000) for number in range(5000)]
            assert set(await asyncio.gather(*sent)) == {PutStatus.PUT_OK}
            await until(lambda: slave.log.end == master.log.end)
            assert slave.files() == master.files()
            assert slave.store.max_queue_offset("T", 0) == 5000

    uvloop.run(scenario())


def test_a_replica_that_reads_nothing_delays_no_other(tmp_path: Path) -> None:
    """A socket that joins as a replica and then is not read holds back no other replica."""

    async def scenario() -> None:
        mode = FlushMode.ASYNC_FLUSH
        relaxed = [
            HaOptions(
                enable_controller_mode=True,
                own_id=number,
                bind_address=HOST,
                ha_listen_port=0,
                in_sync_replicas=2,
                all_ack_in_sync_state_set=False,
            )
            for number in (1, 2)
        ]
        async with nodes(tmp_path, mode, *relaxed) as (master, replica):
            await led(master, 1, frozenset({1}))
            with socket.create_connection((HOST, master.service.port)) as idle:
                idle.sendall(bytes.fromhex("00000001 0000 0000 0000000000000009"))
                idle.sendall(bytes.fromhex("00000002 0000000000000000"))
                replica.service.to_replica(master.address, 1)
                term = master.service.term
                assert term is not None
                await until(lambda: len(term.links) == 2)
                for _ in range(20):
                    sent = [master.send(b"x" * 4000) for _ in range(1000)]
                    assert set(await asyncio.gather(*sent)) == {PutStatus.PUT_OK}
                status = master.service.status().leader
                assert status is not None
                ends = {one.broker_id: one for one in status.replicas}
                assert ends[2].acked == master.log.end
                assert ends[9].acked == 0
                assert ends[9].next_log_offset < master.log.end

    uvloop.run(scenario())


def test_junk_costs_only_its_sender(tmp_path: Path) -> None:
    async def scenario() -> None:
        mode = FlushMode.ASYNC_FLUSH
        async with nodes(tmp_path, mode, switching(1, mode)) as (master,):
            await led(master, 1, frozenset({1}))
            for junk in (b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(64), b"\0\0\0\2" + b"\x7f" * 8):
                reader, writer = await asyncio.open_connection(HOST, master.service.port)
                writer.write(junk)
                async with asyncio.timeout(TIMEOUT_S):
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
            assert not master.service.term.links  # type: ignore[union-attr]
            assert await master.send(b"as before") is PutStatus.PUT_OK

    uvloop.run(scenario())


class Events:
    """Records the events of connections."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def on_accepted(self, connection: int) -> None:
        self.events.append(("accepted", connection))

    def on_connected(self, connection: int) -> None:
        self.events.append(("connected", connection))

    def on_bytes(self, connection: int, data: object) -> None:
        self.events.append(("bytes", connection))

    def on_writable(self, connection: int) -> None:
        self.events.append(("writable", connection))

    def on_closed(self, connection: int, reason: str) -> None:
        self.events.append(("closed", connection))


def test_unwanted_connections_are_closed() -> None:
    async def scenario() -> None:
        events = Events()
        sockets = Sockets(events)
        port = await sockets.listen(HOST, 0)
        given_up = sockets.connect(f"{HOST}:{port}")
        sockets.close(given_up)
        nobody = sockets.connect(f"{HOST}:1")
        no_address = sockets.connect("nowhere")
        await until(lambda: len(events.events) == 2)
        assert sorted(events.events) == [("closed", nobody), ("closed", no_address)]
        assert not sockets.send(given_up, [b"x"])
        await sockets.stop()

    uvloop.run(scenario())


def test_a_connection_that_takes_no_more_says_when_it_does() -> None:
    async def scenario() -> None:
        events = Events()
        sockets = Sockets(events)
        port = await sockets.listen(HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 16)
        await until(lambda: bool(events.events))
        ((_kind, connection),) = events.events
        piece = memoryview(bytes(1 << 20))
        while sockets.send(connection, [piece, piece]):
            pass
        async with asyncio.timeout(TIMEOUT_S):
            while ("writable", connection) not in events.events:
                await reader.read(1 << 20)
        writer.close()
        await until(lambda: ("closed", connection) in events.events)
        await sockets.stop()

    uvloop.run(scenario())


class Program:
    """ha_program.py as a process; `promised` holds its printed lines."""

    def __init__(self, folder: Path, number: int, port: int, group: Path) -> None:
        program = Path(__file__).with_name("ha_program.py")
        arguments = [str(folder / str(number)), str(number), str(port), str(group)]
        self.promised: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.promised += (line.strip() for line in lines if line.endswith("\n"))

    def end(self, number: int) -> list[str]:
        """Signal the process and return all that it printed as promised."""
        self.process.send_signal(number)
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(TIMEOUT_S)
        return [line for line in self.promised if line != "serves"]


def test_a_master_that_is_killed_took_back_nothing(tmp_path: Path) -> None:
    """Every acknowledged message is in every log of three processes after kill -9 of each master
    in turn.
    """
    ports = free_ports(3)
    group = tmp_path / "group.json"
    brokers = {str(number): f"{HOST}:{port}" for number, port in enumerate(ports, 1)}

    def name_master(epoch: int, master: int) -> None:
        text = json.dumps({"epoch": epoch, "master": master, "brokers": brokers})
        Path(f"{group}.new").write_text(text)
        os.rename(f"{group}.new", group)

    name_master(1, 1)
    programs = {n: Program(tmp_path, n, ports[n - 1], group) for n in (1, 2, 3)}
    promised: list[str] = []
    try:
        for epoch in range(1, 5):
            master = (epoch - 1) % 3 + 1
            deadline = time.monotonic() + TIMEOUT_S
            while len(programs[master].promised) < 300 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert len(programs[master].promised) >= 300, f"nothing is promised in epoch {epoch}"
            promised += programs[master].end(signal.SIGKILL)
            name_master(epoch + 1, master % 3 + 1)
            programs[master] = Program(tmp_path, master, ports[master - 1], group)
        deadline = time.monotonic() + TIMEOUT_S
        while len(programs[2].promised) < 300 and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        for program in programs.values():
            promised += program.end(signal.SIGTERM)
    logs = [_bodies(tmp_path / str(number)) for number in (1, 2, 3)]
    for bodies in logs:
        assert set(promised) <= set(bodies)
        assert len(bodies) == len(set(bodies))
    assert len({(tmp_path / str(n) / "epochFileCheckpoint").read_bytes() for n in (1, 2, 3)}) == 1


def _bodies(folder: Path) -> list[str]:
    """The names in a log that stands still."""
    from turbopump.engine.disk.flush import InlineDisk

    config = StoreConfig(
        root=str(folder),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20 * 5000,
        max_hash_slot_num=1000,
        max_index_num=10_000,
    )
    store = Store.open(RealFiles(), config, InlineDisk(), wall_ms())
    store.stand_alone(wall_ms())
    found, at = [], 0
    while at < store.max_queue_offset("T", 0):
        for unit in store.units("T", 0, at, 1000):
            record = store.record_of(unit)
            assert record is not None
            body = bytes(record.body).decode()
            found.append(body[: len(body) // 20])
            at += 1
    store.close(wall_ms())
    return found


def test_a_replica_is_read_a_little_at_a_time() -> None:
    """A megabyte of acknowledgements in one read held the loop for 200 ms."""

    async def scenario() -> None:
        class Read(Events):
            def on_bytes(self, connection: int, data: Any) -> None:
                sizes.append(len(data))

        own = Sockets(Read())
        port = await own.listen(HOST, 0)
        _reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(bytes(1 << 20))
        await until(lambda: sum(sizes) == 1 << 20)
        writer.close()
        await own.stop()

    sizes: list[int] = []
    uvloop.run(scenario())
    assert max(sizes) <= sockets.ACKS_READ_SIZE


def test_an_address_has_a_part_of_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ADDRESS_MAX", 3)

    async def scenario() -> None:
        events = Events()
        own = Sockets(events)
        port = await own.listen(HOST, 0)

        async def connected(handshake: bytes, count: int) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(HOST, port)
            writers.append(writer)
            writer.write(handshake)
            await until(lambda: events.events.count(("accepted", count)) == 1)
            await until(lambda: not handshake or ("bytes", count) in events.events)
            return reader

        writers: list[asyncio.StreamWriter] = []
        word = bytes(sockets.FIRST_WORD)
        first = await connected(word, 1)
        second = await connected(b"", 2)
        third = await connected(word, 3)
        fourth = await connected(word, 4)
        assert await asyncio.wait_for(second.read(), TIMEOUT_S) == b"", "the oldest that is silent"
        await until(lambda: ("closed", 2) in events.events)
        refused, writer = await asyncio.open_connection(HOST, port)
        writers.append(writer)
        assert await asyncio.wait_for(refused.read(), TIMEOUT_S) == b""
        assert not any(one.at_eof() for one in (first, third, fourth))
        for one in writers:
            one.close()
        await own.stop()

    uvloop.run(scenario())


def test_sends_that_wait_for_all_replicas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "UNSENT_MAX_OF_ALL", 24 << 20)

    async def scenario() -> None:
        events = Events()
        own = Sockets(events)
        port = await own.listen(HOST, 0)
        ends = [await asyncio.open_connection(HOST, port, limit=1 << 16) for _ in range(3)]
        await until(lambda: len(events.events) == 3)
        piece = memoryview(bytes(16 << 20))
        for number in (1, 2):
            own.send(number, [piece])
            await asyncio.sleep(0.01)
        own.send(2, [piece[:1]])
        await until(lambda: ("closed", 1) in events.events)
        own.send(3, [piece[:100]])
        assert await ends[2][0].readexactly(100) == bytes(100)
        assert ("closed", 2) not in events.events
        for _reader, writer in ends:
            writer.close()
        await own.stop()

    uvloop.run(scenario())

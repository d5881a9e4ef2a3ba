"""A broker on real sockets: round trips, long polls, limits, restarts, refusals to start."""

import asyncio
import contextlib
import errno
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from interop.support.ports import BROKER, free_port

from turbopump.broker import node as node_module
from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode, StartError
from turbopump.broker.scheduled import transactions
from turbopump.broker.tables.long_polling import HeldPulls
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.files import FileLock
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, Progress, QueueOffset, StoreError
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.server import Server
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.names import OP_TOPIC
from turbopump.net.wire.route import TopicRouteData

pytestmark = pytest.mark.integration

TIMEOUT_S = 30


def test_send_and_pull(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (_, caller):
            body = bytes(range(256)) * 16_384
            for each in (b"small", body):
                response = await caller.send(each, TAGS="a", KEYS="k1 k2", 名="值")
                assert response.code == 0, response.remark
            first, second = await caller.read()
            assert (first.body, second.body) == (b"small", body)
            assert first.properties["名"] == "值"
            assert len(body) == 4 << 20
            assert (await caller.send(body + b"x")).code == 13

    uvloop.run(run())


def test_one_way_send_is_stored(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (node, caller):
            assert (await caller.send(b"first")).code == 0
            fields = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
            request = new_request(310, fields={**fields, "h": "0"}, body=b"second", oneway=True)
            await caller.client.notify(node.address, request)
            response = await caller.pull(1, wait_ms=5_000)
            assert [one.body for one in decode_messages(response.body)] == [b"second"]

    uvloop.run(run())


def test_idle_long_poll_wakes_at_once(
    serve: Callable[..., Any], connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrival wakes it: there is no tick in this test."""
    monkeypatch.setattr(node_module, "TICK_MS", 10 * TIMEOUT_S * 1_000)

    async def run() -> None:
        async with serve() as (node, caller):
            await caller.send(b"first")
            waiter = connect(node.address)
            for number in range(1, 51):
                waiting = asyncio.create_task(waiter.pull(number, wait_ms=TIMEOUT_S * 1_000))
                while node.context.held_pulls.count == 0:
                    await asyncio.sleep(0)
                sent = asyncio.create_task(caller.send(b"%d" % number))
                response = await waiting
                assert [one.body for one in decode_messages(response.body)] == [b"%d" % number]
                await sent
            await waiter.close()

    uvloop.run(run())


def test_long_polls_without_message_end_in_their_order(
    serve: Callable[..., Any], connect: Any
) -> None:
    async def run() -> None:
        async with serve() as (node, caller):
            await caller.send(b"first")
            ended: list[int] = []

            async def wait(wait_ms: int) -> None:
                waiter = connect(node.address)
                assert (await waiter.pull(1, wait_ms=wait_ms)).code == 19
                ended.append(wait_ms)
                await waiter.close()

            endless = asyncio.create_task(caller.pull(1, wait_ms=2 * TIMEOUT_S * 1_000))
            begin = time.perf_counter()
            await asyncio.gather(wait(1_000), wait(300))
            assert time.perf_counter() - begin > 0.9, "not before its time"
            assert ended == [300, 1_000]
            assert not endless.done()
            endless.cancel()

    uvloop.run(run())


def test_closed_connection_leaves_no_held_pull(serve: Callable[..., Any], connect: Any) -> None:
    async def run() -> None:
        async with serve() as (node, caller):
            await caller.send(b"first")
            leaver = connect(node.address)
            waiting = asyncio.create_task(leaver.pull(1, wait_ms=15_000))
            while node.context.held_pulls.count == 0:
                await asyncio.sleep(0)
            await leaver.close()
            with contextlib.suppress(Exception):
                await waiting
            while node.context.held_pulls.count:
                await asyncio.sleep(0.001)
            assert (await caller.send(b"second")).code == 0

    uvloop.run(run())


def test_unknown_code(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve() as (_, caller):
            response = await caller.ask(9_999)
            assert (response.code, response.remark) == (3, " request type 9999 not supported")

    uvloop.run(run())


def test_everything_is_there_after_a_restart(serve: Callable[..., Any]) -> None:
    async def first() -> None:
        async with serve() as (_, caller):
            for number in range(10):
                assert (await caller.send(b"%d" % number, queue_id=number % 4)).code == 0
            await caller.pull()
            commit = {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "2"}
            assert (await caller.ask(15, **commit)).code == 0

    async def second() -> None:
        async with serve() as (node, caller):
            for queue_id in range(4):
                found = [one.body for one in await caller.read(queue_id=queue_id)]
                assert found == [b"%d" % number for number in range(queue_id, 10, 4)]
            asked = {"consumerGroup": "G", "topic": "T", "queueId": "1"}
            response = await caller.ask(14, **asked)
            assert (response.code, response.fields["offset"]) == (0, "2")
            assert node.context.groups.get("G") is not None
            response = await caller.send(b"next", queue_id=0)
            assert response.fields["queueOffset"] == "3"

    uvloop.run(first())
    uvloop.run(second())


def test_stop_answers_waiting_requests(serve: Callable[..., Any], connect: Any) -> None:
    async def run() -> None:
        async with serve() as (node, caller):
            await caller.send(b"first")
            waiter = connect(node.address)
            waiting = asyncio.create_task(waiter.pull(1, wait_ms=15_000))
            while node.context.held_pulls.count == 0:
                await asyncio.sleep(0)
        assert (await waiting).code == 19
        await waiter.close()

    uvloop.run(run())


def test_op_messages_that_wait_are_written_by_a_stop(
    tmp_path: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of another kind that goes on with the store believes op messages alone."""
    monkeypatch.setattr(transactions, "OPS_APART_MS", 1 << 40)  # before 2004 one was written
    monkeypatch.setattr(transactions.Transactions, "step", lead_once)

    async def run() -> None:
        node = BrokerNode(load_config(properties_of(tmp_path, 0))[0])
        await node.start()
        caller = connect(node.address)
        for number in range(3):
            more = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": f"U{number}"}
            half = await caller.send(b"x", **more)
            at = decode_message_id(half.fields["msgId"])[1]
            header = EndTransactionRequest("PG", number, at, 8, f"U{number}")
            assert (await caller.ask(37, header)).code == 0
        assert node.context.transactions.current_outcomes.waiting == 2
        await caller.close()
        await node.stop()
        node = BrokerNode(load_config(properties_of(tmp_path, 0))[0])
        await node.start()
        store = node.context.store
        units = store.units(OP_TOPIC, 0, QueueOffset(0), 10)
        bodies = [store.record_of(unit).body for unit in units]
        await node.stop()
        assert bodies == [b"0,", b"1,2,"]

    uvloop.run(run())


def lead_once(self: transactions.Transactions, _now_ms: int) -> bool:
    """A tick that begins a term, and writes no op message."""
    if self.outcomes is None:
        self._begin_term()
    return not self.is_ready and self._read_ops()


def properties_of(folder: Path, port: int) -> str:
    return (
        f"storePathRootDir={folder}\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n"
        f"listenPort={port}\n"
    )


def test_port_in_use_is_one_sentence_and_nothing_stays(tmp_path: Path) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            node = BrokerNode(load_config(properties_of(tmp_path, port))[0])
            with pytest.raises(StartError, match=f"port {port} .* is in use"):
                await node.start()
        again = BrokerNode(load_config(properties_of(tmp_path, 0))[0])
        await again.start()
        await again.stop()

    uvloop.run(run())


class SlowFiles(RealFiles):
    """A store whose lock is taken only when a test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def lock(self, path: str, content: bytes) -> FileLock:
        self.asked.set()
        assert self.may_go_on.wait(TIMEOUT_S)
        return super().lock(path, content)


def test_start_that_is_cancelled_leaves_nothing_locked(tmp_path: Path) -> None:
    async def run() -> None:
        files = SlowFiles()
        node = BrokerNode(load_config(properties_of(tmp_path, 0))[0], files=files)
        starting = asyncio.create_task(node.start())
        assert await asyncio.to_thread(files.asked.wait, TIMEOUT_S)
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done(), "the thread that opens the store still runs"
        files.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not (tmp_path / "abort").exists()
        again = BrokerNode(load_config(properties_of(tmp_path, 0))[0])
        await again.start()
        await again.stop()

    uvloop.run(run())


class SlowCheckpoint(RealFiles):
    """Files in which the second checkpoint of a start is written only when a test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_go_on = threading.Event(), threading.Event()
        self._count = 0

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        self._count += path.endswith("/checkpoint")
        if self._count == 2:
            self.asked.set()
            assert self.may_go_on.wait(TIMEOUT_S)
        super().write(path, data, position)


def test_a_recovery_that_is_cancelled_ends_soon_and_the_next_goes_on(tmp_path: Path) -> None:
    text = properties_of(tmp_path, 0) + "mappedFileSizeCommitLog=65536\nmaxMessageSize=32768\n"
    store = Store.open(RealFiles(), load_config(text)[0].store, InlineDisk(), 0)
    for _ in range(1000):
        store.append(NewMessage("T", 0, bytes(1000)), 0)
    store.close(0)
    log_end = store.max_log_offset
    shutil.rmtree(tmp_path / "consumequeue")
    seen: list[Progress] = []

    async def run() -> None:
        files = SlowCheckpoint()
        node = BrokerNode(load_config(text)[0], files=files, on_progress=seen.append)
        starting = asyncio.create_task(node.start())
        assert await asyncio.to_thread(files.asked.wait, TIMEOUT_S)
        starting.cancel()
        await asyncio.sleep(0)
        files.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        marks = checkpoints.load(files, str(tmp_path)).marks
        assert marks is not None
        assert 65536 <= marks.queues < log_end // 2, "it ended, and kept its work"
        again = BrokerNode(load_config(text)[0], on_progress=seen.append)
        await again.start()
        assert again.context.store.max_queue_offset("T", 0) == 1000
        await again.stop()

    uvloop.run(run())
    assert "filling the queues" in {one.phase for one in seen}


def test_stop_writes_everything_down_whatever_fails_before(
    serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object) -> None:
        raise RuntimeError("not today")

    async def run() -> None:
        with pytest.raises(RuntimeError, match="not today"):
            async with serve() as (_, caller):
                assert (await caller.send(b"x")).code == 0
                monkeypatch.setattr(HeldPulls, "release_all", broken)
        assert not (tmp_path / "store" / "abort").exists()

    uvloop.run(run())


class FullFiles(RealFiles):
    """A disk that is full for a config file until a test makes room."""

    full_for = ""
    refused = 0

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        if self.full_for and self.full_for in path:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, data, position)


def test_a_topic_that_could_not_be_saved_is_saved_by_a_stop(tmp_path: Path, connect: Any) -> None:
    async def run() -> None:
        files = FullFiles()
        node = BrokerNode(load_config(properties_of(tmp_path, 0))[0], files=files)
        await node.start()
        caller = connect(node.address)
        files.full_for = "topics.json"
        refused = await caller.send(b"x")
        files.full_for = ""
        stopping = asyncio.create_task(node.stop())
        await caller.close()
        await stopping
        assert (refused.code, "No space left" in refused.remark) == (14, True)
        assert '"T"' in (tmp_path / "config" / "topics.json").read_text()

    uvloop.run(run())


def test_a_disk_that_stays_full_is_one_line_of_the_log(
    tmp_path: Path, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        files = FullFiles()
        text = properties_of(tmp_path, 0) + "flushConsumerOffsetInterval=1\n"
        node = BrokerNode(load_config(text)[0], files=files)
        await node.start()
        caller = connect(node.address)
        assert (await caller.send(b"x")).code == 0
        files.full_for = "consumerOffset.json"
        node.context.offsets.commit("G", "T", 0, QueueOffset(1), 1)
        while files.refused < 3:
            await asyncio.sleep(0.01)
        files.full_for = ""
        while '"T@G"' not in node_file(tmp_path, "consumerOffset.json"):
            await asyncio.sleep(0.01)
        await caller.close()
        await node.stop()

    uvloop.run(run())
    records = [record for record in caplog.records if "cannot be saved" in record.getMessage()]
    assert [(one.levelname, one.exc_info) for one in records] == [("ERROR", None)]


def node_file(folder: Path, name: str) -> str:
    path = folder / "config" / name
    return path.read_text() if path.exists() else ""


def test_a_start_that_cannot_save_its_topics_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        files = FullFiles()
        files.full_for = "topics.json"
        node = BrokerNode(load_config(properties_of(tmp_path, 0))[0], files=files)
        with pytest.raises(StartError, match=r"cannot be saved: .* No space left on device"):
            await node.start()
        again = BrokerNode(load_config(properties_of(tmp_path, 0))[0])
        await again.start()
        await again.stop()

    uvloop.run(run())


def test_store_of_a_running_broker_is_left_alone(serve: Callable[..., Any], tmp_path: Path) -> None:
    async def run() -> None:
        async with serve() as (_, caller):
            await caller.send(b"x")
            other = BrokerNode(load_config(properties_of(tmp_path / "store", 0))[0])
            with pytest.raises(StoreError, match="in use by a running broker"):
                await other.start()
            assert (await caller.send(b"y")).code == 0

    uvloop.run(run())


def test_vip_port_serves_all_but_pulls(tmp_path: Path, connect: Any) -> None:
    async def run() -> None:
        port = free_port(BROKER)
        node = BrokerNode(load_config(properties_of(tmp_path, port))[0])
        await node.start()
        caller = connect(f"127.0.0.1:{port - 2}")
        assert (await caller.send(b"x")).code == 0
        for code in (11, 361):
            response = await caller.ask(code, topic="T")
            assert (response.code, response.remark) == (3, f" request type {code} not supported")
        await caller.close()
        caller = connect(node.address)
        assert [one.body for one in await caller.read()] == [b"x"]
        await caller.close()
        await node.stop()

    uvloop.run(run())


def test_retries_come_through_the_delay_levels_and_end_as_dead_letters(
    serve: Callable[..., Any],
) -> None:
    async def run() -> None:
        async with serve("messageDelayLevel=1s 1s 1s\n") as (_, caller):
            sent = await caller.send(b"bad", KEYS="k")
            where = int(sent.fields["msgId"][16:], 16)
            back = {"group": "G", "delayLevel": "0", "maxReconsumeTimes": "1"}
            begin = time.perf_counter()
            assert (await caller.ask(36, offset=str(where), **back)).code == 0
            response = await caller.pull(0, "%RETRY%G", wait_ms=TIMEOUT_S * 1_000)
            assert time.perf_counter() - begin > 0.9, "not before its time"
            (again,) = decode_messages(response.body)
            assert (again.body, again.reconsume_times) == (b"bad", 1)
            assert again.properties["RETRY_TOPIC"] == "T"
            assert (await caller.ask(36, offset=str(again.log_offset), **back)).code == 0
            (dead,) = await caller.read("%DLQ%G")
            assert (dead.body, dead.reconsume_times) == (b"bad", 2)
            assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.fields["msgId"]

    uvloop.run(run())


@contextlib.asynccontextmanager
async def name_server(folder: Path) -> Any:
    config = NamesrvConfig(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=str(folder / "kv.json")
    )
    node = NameServerNode(config)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def test_route_is_there_when_start_returns_and_gone_after_stop(
    serve: Callable[..., Any], tmp_path: Path, connect: Any
) -> None:
    async def run() -> None:
        async with name_server(tmp_path) as names:
            asker = connect(names.address)
            async with serve(f"namesrvAddr={names.address}\n") as (node, caller):
                response = await asker.ask(105, topic="TBW102")
                assert response.code == 0
                route = TopicRouteData.decode(response.body)
                assert route.broker_datas[0].broker_addrs == {0: node.address}
                assert (await caller.send(b"x", topic="New")).code == 0
                for _ in range(1_000):
                    response = await asker.ask(105, topic="New")
                    if response.code == 0:
                        break
                assert response.code == 0
            assert (await asker.ask(105, topic="New")).code == 17
            await asker.close()

    uvloop.run(run())


def test_registration_goes_on_when_the_clock_is_set_back(
    tmp_path: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turbopump.broker.registration.registration.MIN_PERIOD_MS", 20)
    set_back_ms = 0

    async def run() -> None:
        nonlocal set_back_ms
        async with name_server(tmp_path) as names:
            text = properties_of(tmp_path, 0) + "registerNameServerPeriod=20\n"
            config, _ = load_config(f"{text}namesrvAddr={names.address}\n")
            node = BrokerNode(config, now_ms=lambda: time.time_ns() // 1_000_000 - set_back_ms)
            await node.start()
            set_back_ms = 3_600_000
            caller = connect(names.address)
            name = {"brokerName": "broker-a", "brokerId": "0", "clusterName": "DefaultCluster"}
            await caller.ask(104, brokerAddr=node.address, **name)
            async with asyncio.timeout(TIMEOUT_S):
                while not names.is_registered("broker-a", node.address):
                    await asyncio.sleep(0.01)
            await caller.close()
            await node.stop()

    uvloop.run(run())


def test_dead_and_silent_name_servers_do_not_block(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    async def run() -> None:
        dead = free_port()
        table = Dispatcher()
        for code in RequestCode:
            table.add(code, lambda request, peer, now_ms: None)
        silent = Server(table, None, lambda: 0)
        port = await silent.start("127.0.0.1", 0)
        async with name_server(tmp_path) as names:
            addresses = f"127.0.0.1:{dead};127.0.0.1:{port};{names.address}"
            # Who waited for the silent one would wait ten times as long.
            text = f"namesrvAddr={addresses}\nregisterBrokerTimeoutMills={TIMEOUT_S * 10_000}\n"
            async with asyncio.timeout(TIMEOUT_S), serve(text) as (node, caller):
                assert names.is_registered("broker-a", node.address)
                assert (await caller.send(b"x")).code == 0
        await silent.stop()

    uvloop.run(run())

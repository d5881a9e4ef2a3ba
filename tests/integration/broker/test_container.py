"""Several brokers in one process: the failure of a broker does not affect the other brokers
(RIP-31)."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.broker.conftest import SMALL_FILES, Caller, serving
from tests.integration.broker.electing import BROKER, elections
from tests.unit.engine.conftest import TroubledFiles

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.container.config import FILE_MAX, ContainerConfig
from turbopump.broker.container.node import BrokerEvent, ContainerNode
from turbopump.broker.escape.topic_masters import Neighbour
from turbopump.broker.node import BrokerNode
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import ABANDONED
from turbopump.engine.disk.real_files import RealFiles
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.admin import AddBrokerRequest, RemoveBrokerRequest
from turbopump.net.wire.java_properties import Property

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


class Container:
    """A container in this process; a test may choose the disk of each broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, Files] = {}
        self.events: list[BrokerEvent] = []
        self.callers: dict[str, Caller] = {}
        self.admin: Caller
        self.node: ContainerNode

    def write(self, name: str, more: str = "", root: str = "") -> str:
        """The file of a broker, which listens at a free port."""
        path = self.folder / f"{name}.conf"
        path.write_text(
            f"brokerName={name}\nstorePathRootDir={root or self.folder / name}\nlistenPort=0\n"
            f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n{SMALL_FILES}{more}"
        )
        return str(path)

    def make(
        self, config: BrokerConfig, neighbours: Callable[[], Sequence[Neighbour]]
    ) -> BrokerNode:
        files = self.files.get(config.broker_name)
        return BrokerNode(config, files=files, neighbours=neighbours)

    async def until(self, *names: str) -> None:
        """Wait until a broker of these names has started, or failed."""
        async with asyncio.timeout(TIMEOUT_S):
            while {one.name for one in self.events}.isdisjoint(names):
                await asyncio.sleep(0.02)

    async def add(self, path: str) -> tuple[int, str | None]:
        response = await self.admin.ask(RequestCode.ADD_BROKER, AddBrokerRequest(path))
        return response.code, response.remark

    async def remove(self, name: str, broker_id: int = 0) -> tuple[int, str | None]:
        header = RemoveBrokerRequest(name, "DefaultCluster", broker_id)
        response = await self.admin.ask(RequestCode.REMOVE_BROKER, header)
        return response.code, response.remark

    def caller(self, name: str) -> Caller:
        """A client of the broker that serves under this name now."""
        (member,) = (one for one in self.node.members if one.config.broker_name == name)
        caller = self.callers.get(name)
        if caller is None or caller.address != member.node.address:
            caller = self.callers[name] = Caller(member.node.address)
        return caller

    async def send(self, name: str, body: bytes) -> int:
        return (await self.caller(name).send(body)).code

    async def bodies(self, name: str) -> list[bytes]:
        return [bytes(one.body) for one in await self.caller(name).read()]


@contextlib.asynccontextmanager
async def running(container: Container, *paths: str) -> AsyncIterator[Container]:
    config = ContainerConfig()
    config.update_keys(
        [
            Property("listenPort", "0"),
            Property("bindAddress", "127.0.0.1"),
            Property("brokerContainerIP", "127.0.0.1"),
            Property("brokerConfigPaths", ":".join(paths)),
        ]
    )
    container.node = ContainerNode(config, make=container.make, on_event=container.events.append)
    await container.node.start()
    container.admin = Caller(container.node.address)
    try:
        yield container
    finally:
        for caller in (container.admin, *container.callers.values()):
            await caller.close()
        await container.node.stop()


def play(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * TIMEOUT_S):
            await story()

    uvloop.run(bounded())


def test_brokers_come_and_go(tmp_path: Path) -> None:
    async def story() -> None:
        container = Container(tmp_path)
        a, b, c = (container.write(name) for name in "abc")
        async with running(container, a, b):
            await container.until("DefaultCluster_a_0")
            await container.until("DefaultCluster_b_0")
            assert await container.send("a", b"to a") == await container.send("b", b"to b") == 0
            assert await container.add(c) == (0, None)
            assert await container.send("c", b"to c") == 0
            already = "DefaultCluster_c_0 has already been added to current broker container"
            assert await container.add(c) == (1, already)
            assert await container.remove("b") == (0, None)
            assert await container.remove("b") == (211, "Broker not exist")
            assert not (tmp_path / "b" / "abort").exists(), "it has stopped in order"
            assert await container.bodies("a") == [b"to a"]
            assert await container.add(b) == (0, None)
            assert await container.bodies("b") == [b"to b"]
        gone = [one.name for one in container.events if one.kind == "removed"]
        assert gone[0] == "DefaultCluster_b_0"
        assert not list(tmp_path.glob("*/abort")), "all have stopped in order"

    play(story)


def test_a_node_that_cannot_start_stops_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        container = Container(tmp_path)
        fine = container.write("fine")
        no_folder = container.write("none", root="/proc/none")
        broken = container.write("broken", "listenPort=many\n")
        async with running(container, no_folder, broken, str(tmp_path / "gone"), fine):
            await container.until("DefaultCluster_fine_0")
            await container.until(no_folder)
            assert await container.send("fine", b"1") == 0
            reasons = {one.name: one.text for one in container.events if one.kind == "failed"}
            assert "/proc/none" in reasons[no_folder] and "listenPort=many" in reasons[broken]
            same = container.write("same", root=str(tmp_path / "fine"))
            (tmp_path / "link").symlink_to(tmp_path / "fine")
            linked = container.write("linked", root=str(tmp_path / "link"))
            for path in (same, linked):
                code, remark = await container.add(path)
                assert code == 1 and str(remark).endswith("is that of DefaultCluster_fine_0")
            port = container.caller("fine").address.rpartition(":")[2]
            taken = container.write("taken", f"vipPortEnable=false\nlistenPort={port}\n")
            code, remark = await container.add(taken)
            assert code == 1 and f"port {port}" in str(remark) and "in use" in str(remark)
            code, remark = await container.add("/dev/zero")
            assert (code, remark) == (1, "addBroker properties empty: /dev/zero: it is no file")
            assert await container.add("/proc/self/pagemap") == (1, "addBroker properties empty")
            large = tmp_path / "large.conf"
            large.write_bytes(b"#" * (FILE_MAX + 1))
            code, remark = await container.add(str(large))
            assert code == 1 and str(remark).endswith(f"more than {FILE_MAX} bytes")
            large.write_bytes(b"brokerName=\xff\n")
            code, remark = await container.add(str(large))
            assert code == 1 and str(remark).endswith("it is not UTF-8 text")
            assert [one.name for one in container.node.members] == ["DefaultCluster_fine_0"]
            assert await container.send("fine", b"2") == 0

    play(story)


def test_a_disk_that_fails_is_one_brokers(tmp_path: Path) -> None:
    async def story() -> None:
        container = Container(tmp_path)
        bad = container.files["bad"] = TroubledFiles()
        paths = [container.write(name, "flushDiskType=SYNC_FLUSH\n") for name in ("bad", "good")]
        async with running(container, *paths):
            await container.until("DefaultCluster_bad_0")
            await container.until("DefaultCluster_good_0")
            assert await container.send("bad", b"1") == 0
            bad.fail_sync = True
            assert await container.send("bad", b"2") == ResponseCode.FLUSH_DISK_TIMEOUT
            for number in range(20):
                assert await container.send("good", b"%d" % number) == 0
            assert await container.send("bad", b"3") == ResponseCode.SERVICE_NOT_AVAILABLE
            bad.fail_sync = False
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    with contextlib.suppress(Exception):  # it opens its store again
                        if await container.send("bad", b"4") == 0:
                            break
                    await asyncio.sleep(0.05)
            assert len(await container.bodies("good")) == 20
            bad.fail_sync = True
            assert await container.send("bad", b"5") != 0
        (reason,) = container.node.unclean
        assert reason.startswith("DefaultCluster_bad_0 did not stop in order: OSError")
        assert not (tmp_path / "good" / "abort").exists()

    play(story)


class HangingFiles(RealFiles):
    """A disk that answers no sync after a test switches it."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.may_go_on = False, threading.Event()

    def _wait(self) -> None:
        if self.hangs:
            assert self.may_go_on.wait(2 * TIMEOUT_S)

    def sync(self, path: str) -> None:
        self._wait()
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        self._wait()
        super().sync_folder(path)


def test_a_disk_that_hangs_holds_up_no_other_broker(tmp_path: Path) -> None:
    """The removal of a broker on a hanging disk is given up in time, although syncs of the others
    return meanwhile.
    """

    async def story() -> None:
        container = Container(tmp_path)
        hung = container.files["hung"] = HangingFiles()
        more = "flushDiskType=SYNC_FLUSH\nsyncTimeoutMs=1000\nflushConsumerOffsetInterval=100\n"
        paths = [container.write(name, more) for name in ("hung", "good")]
        async with running(container, *paths):
            await container.until("DefaultCluster_hung_0")
            await container.until("DefaultCluster_good_0")
            assert await container.send("hung", b"1") == 0
            hung.hangs = True
            began_s = time.monotonic()
            removal = asyncio.create_task(container.remove("hung"))
            count = 0
            while not removal.done():
                # A topic each: tables are synced, so that the other disk is seen to answer.
                assert (await container.caller("good").send(b"x", topic=f"T{count}")).code == 0
                count += 1
                await asyncio.sleep(0.02)
            assert await removal == (0, None)
            assert time.monotonic() - began_s < 20 and count > 20
            del container.files["hung"]
            code, remark = await container.add(paths[0])
            assert code == 1 and "start broker failed" in str(remark), "its store is still in use"
            assert await container.send("good", b"y") == 0
        assert ABANDONED, "the process must not wait for its threads"

    try:
        play(story)
    finally:
        ABANDONED.clear()


def test_a_broker_that_recovers_long_is_removed_while_it_starts(tmp_path: Path) -> None:
    class Locked(RealFiles):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.may_go_on = threading.Event(), threading.Event()

        def lock(self, path: str, content: bytes) -> Any:
            self.asked.set()
            assert self.may_go_on.wait(TIMEOUT_S)
            return super().lock(path, content)

    async def story() -> None:
        container = Container(tmp_path)
        slow = container.files["slow"] = Locked()
        async with running(container, container.write("slow"), container.write("quick")):
            await container.until("DefaultCluster_quick_0")
            assert await asyncio.to_thread(slow.asked.wait, TIMEOUT_S)
            assert await container.send("quick", b"1") == 0
            removal = asyncio.create_task(container.remove("slow"))
            await asyncio.sleep(0.1)
            assert not removal.done(), "the thread that opens the store still runs"
            slow.may_go_on.set()
            assert await removal == (0, None)
            failed = [one.text for one in container.events if one.kind == "failed"]
            assert failed == ["DefaultCluster_slow_0 was removed while it started"]
            assert await container.add(str(tmp_path / "slow.conf")) == (0, None)

    play(story)


async def info(caller: Caller) -> dict[str, str]:
    response = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(bytes(response.body))["table"]
    return table


ACTING = (
    "brokerName=g\nenableSlaveActingMaster=true\ntotalReplicas=2\nskipPreOnline=true\n"
    "enableRemoteEscape=true\nhaListenPort=1\n"
)


def test_due_messages_of_a_replica_go_to_a_master_of_its_process(tmp_path: Path) -> None:
    async def story() -> None:
        config = NamesrvConfig(
            listen_port=0, bind_address="127.0.0.1", kv_config_path=f"{tmp_path}/kv.json"
        )
        config.support_acting_master = config.notify_min_broker_id_changed = True
        namesrv = NameServerNode(config)
        await namesrv.start()
        at = f"namesrvAddr={namesrv.address}\n"
        container = Container(tmp_path)
        replica = container.write("g", f"{ACTING}{at}brokerRole=SLAVE\nbrokerId=1\n")
        text = ACTING.replace("haListenPort=1", "haListenPort=0")
        async with (
            serving(tmp_path / "master", f"{text}{at}") as (master, caller),
            running(container, replica, container.write("m", at)),
        ):
            await container.until("DefaultCluster_g_1")
            await container.until("DefaultCluster_m_0")
            assert await container.send("m", b"plain") == 0
            assert (await caller.send(b"delayed", DELAY="2")).code == 0
            assert (await caller.send(b"timer", TIMER_DELAY_SEC="5")).code == 0
            end = (await info(caller))["commitLogMaxOffset"]
            while (await info(container.caller("g")))["commitLogMaxOffset"] != end:
                await asyncio.sleep(0.1)
            await master.stop()
            while {b"delayed", b"timer"} - set(await container.bodies("m")):
                await asyncio.sleep(0.1)
            table = await info(container.caller("g"))
            assert table["escapedTo_m"].startswith("2 messages, last at ")
            assert table["commitLogMaxOffset"] == end, "it writes nothing"
            assert (await container.remove("g", 1)) == (0, None)
            await master.start()
        await namesrv.stop()

    play(story)


def test_an_elected_master_that_is_removed_gives_the_lead_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A removed master hands over its lead first, and the others go on.

    It has no id in its file; a request means its present one.
    """

    caplog.set_level("INFO")

    async def story() -> None:
        async with elections(tmp_path, brokers=0) as group:
            container = Container(tmp_path)
            elected = (
                f"enableControllerMode=true\nbrokerId=-1\nnamesrvAddr={group.namesrv.address}\n"
                f"controllerAddr={';'.join(group.admin.addresses)}\n"
            )
            paths = container.write(BROKER, elected), container.write("alone")
            async with running(container, *paths):
                await container.until(f"DefaultCluster_{BROKER}_-1", f"DefaultCluster_{BROKER}_0")
                await container.until("DefaultCluster_alone_0")
                await group.send("before")
                await group.add()
                await group.whole(2)
                assert (await group.route())[0] == container.caller(BROKER).address
                assert await container.remove(BROKER, 2) == (211, "Broker not exist")
                took: list[float] = []

                async def sending() -> None:
                    while True:
                        took.append(await group.send(f"meanwhile {len(took)}"))

                sender = asyncio.create_task(sending())
                assert await container.remove(BROKER, 0) == (0, None)
                sender.cancel()
                assert max(took) < 1, "senders hardly miss a master"
                assert "the lead is handed over" in caplog.text
                after = await group.info()
                assert after is not None and after.master_broker_id == 2, "it leads already"
                await group.send("after")
                await group.check()
                assert await container.send("alone", b"1") == 0
                assert await container.add(paths[0]) == (0, None)
                await group.whole(2)
                assert await container.remove(BROKER, 1) == (0, None)

    play(story)

"""Three brokers and a name server as processes, with the state that each of them reports."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.ha.proxy import Link

from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.command import Command, new_request

HOST = "127.0.0.1"
START_S = 60.0
END_S = 30.0
ASK_MS = 2_000
SMALL_FILES = (
    "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
)
RUNTIME_INFO, EPOCH_CACHE = 28, 1007


class Process:
    """A command of ours that prints JSON when it is ready."""

    def __init__(self, folder: Path, name: str, arguments: list[str]) -> None:
        self.name = name
        self._arguments = [sys.executable, "-m", "turbopump", *arguments, "--json"]
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self.paused = False
        self.lives = 0

    @property
    def runs(self) -> bool:
        return self._process is not None and not self.paused

    async def start(self) -> str:
        """Run it until it serves; returns its address."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        self.lives += 1
        async with asyncio.timeout(START_S):
            while line := await self._process.stdout.readline():
                ready = json.loads(line)
                if "address" in ready:
                    return str(ready["address"])
        raise AssertionError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal it and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            self._signal(process, signal.SIGCONT)
            self._signal(process, number)
        self.paused = False
        async with asyncio.timeout(END_S):
            assert process.stdout is not None
            await process.stdout.read()
            code = await process.wait()
        assert code == (-number if number == signal.SIGKILL else 0), f"{self.name} ended: {code}"

    def pause(self, paused: bool) -> None:
        """Suspend or continue the process (SIGSTOP, SIGCONT)."""
        if self._process is not None and paused != self.paused:
            self._signal(self._process, signal.SIGSTOP if paused else signal.SIGCONT)
            self.paused = paused

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


@dataclass(frozen=True)
class Seen:
    """State that a broker reported."""

    epoch: int
    end: int
    confirm: int
    members: frozenset[int] | None
    """SyncStateSet of a master; None for a replica."""
    set_epoch: int
    reason: str


class Broker(Process):
    """A broker of the group; `links` begin at it."""

    def __init__(self, folder: Path, number: int, port: int, ha_port: int, more: str) -> None:
        self.number, self.ha_port = number, ha_port
        self.address = f"{HOST}:{port}"
        self.folder = folder / str(number)
        self.group_file = folder / f"group-{number}.json"
        self.links: dict[int, Link] = {}
        self._client = Client(lambda: 0)
        self._config = folder / f"broker-{number}.conf"
        self._text = (
            f"brokerIP1={HOST}\nbindAddress={HOST}\nlistenPort={port}\nbrokerId={number}\n"
            f"storePathRootDir={self.folder}\nhaGroupFile={self.group_file}\n"
            f"haListenPort={ha_port}\n{SMALL_FILES}{more}"
        )
        super().__init__(folder, f"broker-{number}", ["broker", "-c", str(self._config)])

    async def start(self) -> str:
        self._config.write_text(self._text)
        return await super().start()

    def tell(self, epoch: int, master: int, members: list[int]) -> None:
        """Write its group file, at once for every reader."""
        brokers = {str(number): link.address for number, link in self.links.items()}
        brokers[str(self.number)] = f"{HOST}:{self.ha_port}"
        text = {"epoch": epoch, "master": master, "brokers": brokers, "members": members}
        new = self.group_file.with_suffix(".new")
        new.write_text(json.dumps(text))
        new.rename(self.group_file)

    async def ask(self, code: int) -> dict[str, Any] | None:
        """JSON of a response; None without a response."""
        if not self.runs:
            return None
        response: Command | None = None
        with contextlib.suppress(RemotingError):
            response = await self._client.call(self.address, new_request(code), ASK_MS)
        if response is None or response.code != 0 or not response.body:
            return None
        found = json.loads(bytes(response.body))
        assert isinstance(found, dict)
        return found

    async def seen(self) -> Seen | None:
        """State of the broker, None if it does not report it."""
        response = await self.ask(RUNTIME_INFO)
        table = response["table"] if response else {}
        if "haEpoch" not in table:
            return None
        confirm, members = int(table["haConfirmOffset"]), table.get("haSyncStateSet")
        return Seen(
            int(table["haEpoch"]),
            confirm + int(table["haConfirmGap"]),
            confirm,
            None if members is None else frozenset(map(int, members.split(","))),
            int(table.get("haSyncStateSetEpoch", -1)),
            table.get("haReason", ""),
        )

    async def epochs(self) -> list[tuple[int, int]] | None:
        """List of its epochs as (epoch, start)."""
        response = await self.ask(EPOCH_CACHE)
        return response and [(one["epoch"], one["startOffset"]) for one in response["epochList"]]

    async def close(self) -> None:
        """kill -9, if it still runs."""
        try:
            await self.end()
        finally:
            await self._client.close()

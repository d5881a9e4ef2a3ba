"""A broker with a backlog of popped messages: its memory, and the slowest send of an honest client.

    python -m tests.fuzz.pop_backlogs                  both, 400,000 messages and 1,000 groups
    python -m tests.fuzz.pop_backlogs --share 0.1      a tenth of each
    python -m tests.fuzz.pop_backlogs groups           one

`unacked`: a group pops all messages, and acknowledges none: all are due in the same seconds.
`groups`: new groups pop some messages each, and give them back by letting their time pass: each
needs a retry topic of its own. A line for each says how long revival took, and how long the sends
meanwhile; see tests/fuzz/attacks.py for its figures.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.fuzz.attacks import SERVER, Sent, honest, memory_mb, told
from turbopump.net.transport.client import Client
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.offsets import GetMaxOffsetRequest
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest
from turbopump.net.wire.message import encode_batch

MESSAGES: Final = 400_000
GROUPS: Final = 1_000
BATCH: Final = 500
POPPED: Final = 32
CALLS: Final = 32
"""Calls that are under way at a time."""
INVISIBLE_MS: Final = {"unacked": 90_000, "groups": 20_000}
REVIVED_MAX_S: Final = 300


class Backlog:
    """One backlog, at a broker of its own address."""

    def __init__(self, address: str, name: str, share: float) -> None:
        self._address, self._name = address, name
        self._client = Client(lambda: int(time.time() * 1000))
        self._messages = int(MESSAGES * share) if name == "unacked" else POPPED
        self._groups = [f"new{at}" for at in range(int(GROUPS * share))]
        self._groups = ["popper"] if name == "unacked" else self._groups
        self._popped = 0

    async def play(self, pid: int) -> bool:
        """Make it, and wait for revival; whether sends and memory stayed within the aims."""
        try:
            await self._fill()
            sends, most = list[Sent](), memory_mb(pid)
            client = asyncio.create_task(honest(self._address, pid, sends))
            began = time.monotonic()
            while await self._revived() < self._popped:
                assert time.monotonic() - began < REVIVED_MAX_S, "messages are not revived"
                await asyncio.sleep(0.5)
                most = {key: max(value, most[key]) for key, value in memory_mb(pid).items()}
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
            waited_s = time.monotonic() - began
            print(f"{self._popped} messages were revived {waited_s:.1f} s after the last pop")
            return told(self._name, sends, most, 0.0)
        finally:
            await self._client.close()

    async def _fill(self) -> None:
        body = encode_batch((0, b"x" * 100, b"") for _ in range(min(BATCH, self._messages)))
        sends = max(1, self._messages // BATCH)
        await self._all(self._send(body, at) for at in range(sends))
        pops = self._messages // POPPED
        await self._all(self._pop(group) for group in self._groups for _ in range(pops))

    async def _all(self, calls) -> None:  # type: ignore[no-untyped-def]
        waiting = set[asyncio.Task[None]]()
        for call in calls:
            waiting.add(asyncio.create_task(call))
            if len(waiting) >= CALLS:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
        await asyncio.gather(*waiting)

    async def _ask(self, code: int, header: object, body: bytes = b"") -> Command:
        return await self._client.call(self._address, new_request(code, header, body), 60_000)

    async def _send(self, body: bytes, number: int) -> None:
        header = SendMessageRequest(
            "filler", f"Filled{self._name}", "TBW102", 4, number % 4, 0, 0, 0, properties="",
            batch=True,
        )  # fmt: skip
        answer = await self._ask(RequestCode.SEND_MESSAGE, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def _pop(self, group: str) -> None:
        header = PopMessageRequest(
            group, f"Filled{self._name}", -1, POPPED, INVISIBLE_MS[self._name], 0, 0, 0
        )
        answer = await self._ask(RequestCode.POP_MESSAGE, header)
        if answer.code == ResponseCode.SUCCESS:
            offsets = answer.fields["msgOffsetInfo"]
            self._popped += offsets.count(",") + offsets.count(";") + 1

    async def _revived(self) -> int:
        found = 0
        for group in self._groups:
            header = GetMaxOffsetRequest(f"%RETRY%{group}_Filled{self._name}", 0)
            answer = await self._ask(RequestCode.GET_MAX_OFFSET, header)
            found += int((answer.fields or {}).get("offset", 0))
        return found


def main() -> int:
    """Play backlogs, each at a broker of its own; 0 if all was within the aims."""
    parser = argparse.ArgumentParser(description="A broker with a backlog of popped messages.")
    parser.add_argument("backlogs", nargs="*", default=list(INVISIBLE_MS))
    parser.add_argument("--share", type=float, default=1.0, help="of the messages and groups")
    options = parser.parse_args()
    results = []
    for name in options.backlogs:
        with tempfile.TemporaryDirectory() as folder:
            results += serve_backlog(name, options.share, folder)
    return 0 if all(results) else 1


def serve_backlog(name: str, share: float, folder: str) -> list[bool]:
    """Play a backlog against a broker made for it."""
    conf, log = Path(folder, "broker.conf"), Path(folder, "broker.log")
    conf.write_text(f"storePathRootDir={folder}/store\nlistenPort=0\nbrokerIP1=127.0.0.1\n")
    command = [sys.executable, "-c", SERVER, str(conf)]
    pipe = subprocess.PIPE
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None and process.stdin is not None
        address = process.stdout.readline().strip()
        try:
            result = asyncio.run(Backlog(address, name, share).play(process.pid))
        finally:
            process.stdin.close()
        code = process.wait()
    if code:
        print(f"the broker ended with {code}:\n{log.read_text()[-10_000:]}")
    return [result, code == 0]


if __name__ == "__main__":
    sys.exit(main())

"""Senders and readers, and their responses: the history that every store is compared with."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from functools import partial

from tests.integration.ha.ledger import Ledger

from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import MessageView, decode_messages

TOPIC = "Chaos"
QUEUES = 4
SENDERS = 8
READERS = 2
CALL_MS = 5_000
"""Timeout of a call, greater than slaveTimeout: a master reports an unknown result after that."""
AGAIN_S = 0.02
"""Pause after a refusal before the next try."""
READ_MAX = 32
PULL, SEND, SUCCESS = 11, 310, 0
NO_RESPONSE = -1
IN_FLIGHT = 8


class Finding(AssertionError):
    """A promise that was broken."""


class History:
    """Promised messages. A place is (queue, offset)."""

    def __init__(self) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.read: dict[tuple[int, int], bytes] = {}
        self.sent = 0
        self.refusals: dict[int, int] = {}
        """Number of responses by code."""

    def on_acked(self, place: tuple[int, int], body: bytes) -> None:
        """A sender got that answer."""
        if place in self.acked:
            raise Finding(f"{place} was given to {self.acked[place][:20]!r} and {body[:20]!r}")
        if self.read.get(place, body) != body:
            raise Finding(f"{place} was read as {self.read[place][:20]!r}, acked as {body[:20]!r}")
        self.acked[place] = body

    def on_read(self, place: tuple[int, int], body: bytes, source: str) -> None:
        """A reader got it."""
        for known in (self.read, self.acked):
            if known.get(place, body) != body:
                raise Finding(f"{source} gave {body[:20]!r} at {place}, not {known[place][:20]!r}")
        self.read[place] = body

    def compare(self, queue: int, bodies: list[bytes], source: str) -> None:
        """Compare the history with all messages of a broker's queue, from offset 0, while no
        message is written.
        """
        if len(set(bodies)) != len(bodies):
            raise Finding(f"{source}: messages of queue {queue} are there twice")
        for kind, known in (("acknowledged", self.acked), ("read", self.read)):
            for (where, offset), body in known.items():
                if where == queue and (offset >= len(bodies) or bodies[offset] != body):
                    found = bodies[offset][:20] if offset < len(bodies) else None
                    raise Finding(
                        f"{source}: {body[:20]!r} was {kind} at {queue}/{offset},"
                        f" there is {found!r}"
                    )


async def pull(client: Client, address: str, queue: int, offset: int) -> Command:
    """Send one PULL_MESSAGE. Raises RemotingError."""
    header = PullMessageRequest(
        "Readers", TOPIC, queue, offset, READ_MAX, SUBSCRIPTION_FLAG, 0, 0, 0, "*"
    )
    return await client.call(address, new_request(PULL, header), CALL_MS)


def messages_of(response: Command) -> list[MessageView]:
    """Messages in the response to a pull."""
    return decode_messages(bytes(response.body or b"")) if response.code == SUCCESS else []


class Load:
    """Senders to the named master, and one to any broker; readers that continue, and read earlier
    messages again. `stop` ends it and raises its findings.
    """

    def __init__(
        self,
        rng: random.Random,
        addresses: list[str],
        master: Callable[[], str],
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger`: the ledger in which every event is recorded."""
        self.history = History()
        self._ledger = ledger
        self._rng = rng
        self._addresses, self._master = addresses, master
        self._stopped = False
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all senders and readers."""
        works = [partial(self._send, n) for n in range(SENDERS)]
        works += [partial(self._read, n) for n in range(READERS)]
        self._clients = [Client(_now_ms) for _ in works]
        self._tasks = [
            asyncio.ensure_future(work(client))
            for work, client in zip(works, self._clients, strict=True)
        ]

    @property
    def acked(self) -> int:
        """Number of messages acknowledged so far."""
        return len(self.history.acked)

    def check(self) -> None:
        """Raise the finding of a sender or reader."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """End all senders and readers; raise their findings."""
        self._stopped = True
        await asyncio.gather(*self._tasks)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, and drop all findings."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def _send(self, number: int, client: Client) -> None:
        bodies = (
            b"%d-%d." % (number, count) + b"x" * (count * 37 % 1500) for count in itertools.count()
        )
        while not self._stopped:
            address = self._rng.choice(self._addresses) if number == 0 else self._master()
            # Half of them have several on their way at once.
            some = itertools.islice(bodies, 1 if number % 2 else IN_FLIGHT)
            sends = [self._send_one(client, address, number % QUEUES, body) for body in some]
            if not all(await asyncio.gather(*sends)):
                await asyncio.sleep(AGAIN_S)

    async def _send_one(self, client: Client, address: str, queue: int, body: bytes) -> bool:
        history, code = self.history, NO_RESPONSE
        header = SendMessageRequestV2("PG", TOPIC, "TBW102", QUEUES, queue, 0, _now_ms(), 0)
        history.sent += 1
        try:
            response = await client.call(address, new_request(SEND, header, body), CALL_MS)
            code = response.code
        except RemotingError:
            pass
        if code == SUCCESS:
            history.on_acked((queue, int(response.fields["queueOffset"])), body)
            if self._ledger is not None:
                self._ledger.acked(address, queue, response, body)
            return True
        history.refusals[code] = history.refusals.get(code, 0) + 1
        return False

    async def _read(self, number: int, client: Client) -> None:
        rng = self._rng
        at = [0] * QUEUES
        while not self._stopped:
            queue = rng.randrange(QUEUES)
            address = self._master() if number == 0 else rng.choice(self._addresses)
            again = rng.random() < 0.1
            begin = rng.randrange(at[queue] + 1) if again else at[queue]
            messages: list[MessageView] = []
            try:
                messages = messages_of(await pull(client, address, queue, begin))
            except RemotingError:
                pass
            for message in messages:
                place = (queue, int(message.queue_offset))
                self.history.on_read(place, bytes(message.body), address)
                if self._ledger is not None:
                    self._ledger.read(address, message)
            if messages:
                at[queue] = max(at[queue], int(messages[-1].queue_offset) + 1)
            else:
                await asyncio.sleep(AGAIN_S)


async def read_all(address: str, queue: int, deadline_s: float) -> list[bytes]:
    """Read a whole queue; raises Finding where its offsets are not contiguous from 0."""
    client, bodies = Client(_now_ms), list[bytes]()
    try:
        while True:
            response = await pull(client, address, queue, len(bodies))
            messages = messages_of(response)
            if not messages:
                end = int(response.fields["maxOffset"])
                if len(bodies) >= end:
                    return bodies
                if time.monotonic() > deadline_s:
                    raise Finding(f"{address}: {queue}/{len(bodies)} of {end}: {response.code}")
                await asyncio.sleep(AGAIN_S)
            for message in messages:
                if message.queue_offset != len(bodies):
                    raise Finding(f"{address}: {queue}/{message.queue_offset}, not {len(bodies)}")
                bodies.append(bytes(message.body))
    finally:
        await client.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

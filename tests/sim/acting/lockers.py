"""Orderly consumers in the suite of acting replicas: each requests the lock of the same queue.

Owns the client's belief, like that of unmodified clients: it holds a queue for a while after a
confirmed lock, until a refusal. At most one client may hold it (I17), in groups with
lockInStrictMode, with any trouble of brokers and network.
"""

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.sim.acting.routing import address_of
from tests.sim.group.machines import Process
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.queues import MessageQueue

if TYPE_CHECKING:
    from tests.sim.acting.suite import Run

QUEUE = MessageQueue("T", "broker", 0)
BELIEF_MS: Final = 10_000
"""Clients have 30 s; so all else that is about locks is that much shorter, too."""
YOUNG_MS: Final = 11_500
TIMEOUT_MS: Final = 1_000
"""Timeout of a client's request (RocketMQ's clients: 1 s)."""


class Locker(Process):
    """A client; it gives the lock back now and then."""

    def __init__(self, group: "Run", name: str, others: list["Locker"]) -> None:
        self.rng = random.Random(f"{name} {group.seed}")
        self.until_ms = 0
        """Time until which it believes that it holds the queue."""
        self.grants = 0
        self._others = others
        super().__init__(group, name)

    def begin(self) -> None:
        self._busy, self._next_ms, self._address = False, 0, ""

    def on_tick(self, now_ms: int) -> None:
        if self._busy or now_ms < self._next_ms:
            return
        self._busy, self._next_ms = True, now_ms + int(self.rng.random() * 600)
        if not self._address or self.rng.random() < 0.2:
            names = self.rng.choice(self.group.names).endpoint.address
            self._call(names, self.group.route(), self._routed)
            return
        code = RequestCode.LOCK_BATCH_MQ
        if self.rng.random() < 0.1:
            code, self.until_ms = RequestCode.UNLOCK_BATCH_MQ, 0
        members = {"consumerGroup": "g", "clientId": self.name, "mqSet": [QUEUE.to_json()]}
        request = new_request(code, None, bodies.encode_json(members))
        self._call(self._address, request, partial(self._answered, code))

    def _call(self, address: str, request: Command, then: object) -> None:
        self.endpoint.call(address, request, TIMEOUT_MS).then(then)  # type: ignore[arg-type]

    def _routed(self, response: Command | str) -> None:
        self._busy, self._address = False, address_of(response)

    def _answered(self, code: int, response: Command | str) -> None:
        self._busy = False
        if isinstance(response, str) or response.code != 0:
            self._address = ""
            return
        if code == RequestCode.UNLOCK_BATCH_MQ:
            return
        given = bodies.load_object(response.body)["lockOKMQSet"]
        now_ms = self.group.now_ms
        self.until_ms = now_ms + BELIEF_MS if given else 0
        if not given:
            return
        self.grants += 1
        holders = [one.name for one in self._others if one.until_ms > now_ms]
        assert holders == [self.name], f"{holders} hold {QUEUE} (I17)"

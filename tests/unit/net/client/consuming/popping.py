"""A scripted broker with pops: popped messages are invisible for a time, then visible again.

Owns the invisible times of a group and the record of the clients' acknowledgements and changes. It
must never judge: the tests do. Tests with real brokers are in tests/integration/client/pop.
"""

import asyncio
from dataclasses import dataclass, field

from tests.unit.net.client.cluster import (
    START_MS,
    ScriptedBroker,
    ScriptedCluster,
    now_ms,
    record_bytes,
)

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeResponse, PopMessageResponse

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True)
class Settled:
    """An acknowledgement or a change of a message's invisible time."""

    at_ms: int
    place: Place
    again_ms: int | None
    """New invisible time in ms; None for an acknowledgement."""
    handle: str


@dataclass
class Hidden:
    """Messages that the group does not see."""

    until_ms: dict[Place, int] = field(default_factory=dict)
    acked: set[Place] = field(default_factory=set)


class PoppingBroker(ScriptedBroker):
    """Pops of a single group: any queue, the lowest offsets first."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(name, address)
        self.hidden = Hidden()
        self.settled: list[Settled] = []
        self.popped: list[tuple[int, int]] = []
        """(ms, how many) of each pop that found something."""
        self.shown: dict[str, str] = {}
        """Response fields with values that replace the right ones."""

    @property
    def acked(self) -> list[int]:
        """The queue offsets that were acknowledged, in that order."""
        return [one.place[2] for one in self.settled if one.again_ms is None]

    @property
    def put_off(self) -> list[tuple[int, int, int]]:
        """(ms, queue offset, invisible ms) of each change of an invisible time."""
        return [
            (one.at_ms, one.place[2], one.again_ms)
            for one in self.settled
            if one.again_ms is not None
        ]

    async def answer(self, request: Command) -> Command:
        if request.code == RequestCode.POP_MESSAGE:
            return await self._pop(request)
        if request.code == RequestCode.ACK_MESSAGE:
            self.hidden.acked.add(self._settle(request, None))
            return new_response(request, ResponseCode.SUCCESS)
        if request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            again_ms = int(request.fields["invisibleTime"])
            self.hidden.until_ms[self._settle(request, again_ms)] = now_ms() + again_ms
            header = ChangeInvisibleTimeResponse(START_MS + now_ms(), again_ms, 5)
            return new_response(request, ResponseCode.SUCCESS, header=header)
        return await super().answer(request)

    def _settle(self, request: Command, again_ms: int | None) -> Place:
        fields = request.fields
        place = fields["topic"], int(fields["queueId"]), int(fields["offset"])
        self.settled.append(Settled(now_ms(), place, again_ms, fields["extraInfo"]))
        return place

    async def _pop(self, request: Command) -> Command:
        fields = request.fields
        end_ms = now_ms() + int(fields["pollTime"])
        while not (found := self._visible(fields["topic"])) and now_ms() < end_ms:
            await asyncio.sleep(0.01)
        if not found:
            return new_response(request, ResponseCode.POLLING_TIMEOUT)
        taken = found[: int(fields["maxMsgNums"])]
        self.popped.append((now_ms(), len(taken)))
        invisible_ms = int(fields["invisibleTime"])
        for place in taken:
            self.hidden.until_ms[place] = now_ms() + invisible_ms
        body = b"".join(
            record_bytes(place[:2], place[2], self.queues[place[:2]][place[2]]) for place in taken
        )
        starts = {place[1]: place[2] for place in reversed(taken)}
        header = PopMessageResponse(
            START_MS + now_ms(),
            invisible_ms,
            3,
            len(found) - len(taken),
            ";".join(f"0 {queue_id} {start}" for queue_id, start in starts.items()),
        )
        response = new_response(request, ResponseCode.SUCCESS, header=header, body=body)
        response.fields |= self.shown
        return response

    def _visible(self, topic: str) -> list[Place]:
        places = [
            (topic_name, queue_id, at)
            for (topic_name, queue_id), stored in sorted(self.queues.items())
            for at in range(len(stored))
            if topic_name == topic
        ]
        hidden = self.hidden
        return [
            place
            for place in places
            if place not in hidden.acked and hidden.until_ms.get(place, 0) <= now_ms()
        ]


def add_popping(cluster: ScriptedCluster, *names: str, queues: int = 1) -> list[PoppingBroker]:
    """Add brokers that support pops, with the topic of the tests."""
    cluster.add(*names, queues=queues)
    made = []
    for name in names:
        broker = PoppingBroker(name, cluster.named(name).address)
        cluster.brokers[broker.address] = broker
        made.append(broker)
    return made

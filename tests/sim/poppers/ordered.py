"""Ordered pop in a simulated group: a queue's messages are with one consumer at a time, through
elections, power cuts and lost messages (I17).

A run of its own (`make sim SUITE=ordered`): the group of `suite.py` with a popper that pops in
order. Where responses hold, an acknowledged message is not given out again once all before it in
its batch were acknowledged too, and no message of a queue is given out while a batch of it is out.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim.group.machines import GROUP as BROKER_NAME
from tests.sim.poppers.suite import INVISIBLE_MS, SLACK_MS, Letter, Popper, Poppers
from tests.sim.pops.handles import handles_of
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.pop_handles import PopHandle


@dataclass(eq=False)
class GivenOut:
    """A message of the last batch of its queue, as its consumer knows it."""

    handle: str
    until_ms: int
    is_asked: bool = False
    """Whether an acknowledgement is under way, or nothing is known of its outcome."""
    is_acked: bool = False
    """Whether it was answered in time."""


class OrderedPopper(Popper):
    """Pops in order, acknowledges in any, one thing at a time."""

    def __init__(self, group: "OrderedPoppers", name: str) -> None:
        super().__init__(group, name)
        self._out: dict[int, dict[int, GivenOut]] = {}
        self._done: dict[int, int] = {}
        """Queue offset up to which all messages of a queue are acknowledged."""

    def _forget(self) -> None:
        super()._forget()
        self._out.clear()
        self._done.clear()

    def _pop(self) -> None:
        invisible_ms = INVISIBLE_MS[int(self._rng.random() * len(INVISIBLE_MS))]
        count = 32 if self.handles_all else (1, 3, 32)[int(self._rng.random() * 3)]
        header = PopMessageRequest(
            self.readers, self.mail, -1, count, invisible_ms, 0, 0, 0, order=True
        )
        request = new_request(RequestCode.POP_MESSAGE, header)
        until_ms = self.group.now_ms + invisible_ms
        self._ask(self._address, request, partial(self._popped, until_ms))

    def _popped(self, until_ms: int, response: Command | str) -> None:
        if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
            batches: dict[int, dict[int, GivenOut]] = {}
            for message, text in handles_of(response, BROKER_NAME):
                self._held.append((self.letters.get(bytes(message.body)), text))
                batch = batches.setdefault(message.queue_id, {})
                batch[message.queue_offset] = GivenOut(text, until_ms)
            for queue_id, batch in batches.items():
                if self.group.keeps:
                    self._judge(queue_id, batch)
                self.again += any(offset in self._out.get(queue_id, {}) for offset in batch)
                self._out[queue_id] = batch
        self._on(response, {ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT})

    def _judge(self, queue_id: int, batch: dict[int, GivenOut]) -> None:
        done, place = self._done.get(queue_id, 0), f"queue {queue_id}: {sorted(batch)}"
        assert min(batch) >= done, f"{place} was acknowledged up to {done}"
        for offset, out in self._out.get(queue_id, {}).items():
            is_out = not out.is_asked and self.group.now_ms < out.until_ms - SLACK_MS
            assert not is_out, f"{place} while {offset} is out: {out}"

    def _ack(self, letter: Letter | None, text: str) -> None:
        handle = PopHandle.parse(text)
        at = handle.queue_offset or 0
        batch = self._out.get(handle.queue_id, {})
        out = batch.get(at)
        if out is not None and out.handle == text:
            out.is_asked = True
        header = AckMessageRequest(self.readers, self.mail, handle.queue_id, text, at)

        def on_response(response: Command | str) -> None:
            if letter is not None:
                letter.was_handled = True
            is_ok = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            if out is not None and out.handle == text:
                out.is_acked |= is_ok and self.group.now_ms < out.until_ms - SLACK_MS
                self._advance(handle.queue_id, batch)
            self._on(response, {ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})

        self._ask(self._address, new_request(RequestCode.ACK_MESSAGE, header), on_response)

    def _advance(self, queue_id: int, batch: dict[int, GivenOut]) -> None:
        for offset in sorted(batch):
            if not batch[offset].is_acked:
                return
            self._done[queue_id] = max(self._done.get(queue_id, 0), offset + 1)


class OrderedPoppers(Poppers):
    """Run of a seed."""

    popper_class = OrderedPopper


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Any:
    """Play one seed of this suite."""
    return OrderedPoppers(seed, about).play()

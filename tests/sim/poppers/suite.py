"""Pop in a simulated group: a popper whose sends, pops and acknowledgements go to the broker that
the name server calls the master, through elections, power cuts and lost messages (I16).

A run of its own (`make sim SUITE=poppers`), because what a popper sends makes other stories of the
seeds of `group`. Where nothing may be lost, each message that was sent safely is handled in the
end, and one whose acknowledgement was answered in time does not come again.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.sim.group.broker import GroupBroker
from tests.sim.group.machines import GROUP as BROKER_NAME
from tests.sim.group.machines import Client
from tests.sim.group.suite import Run
from tests.sim.pops.handles import handles_of
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.pop_handles import PopHandle

TOPIC, GROUP = "A", "poppers"
INVISIBLE_MS = (600, 1_500, 4_000)
TIMER_STEPS = 20
SLACK_MS = 500
"""Clocks of brokers run at rates of their own."""
ENDS_MS = 60_000
ONE_MS = 60_000


@dataclass(eq=False)
class Letter:
    """One message, as its popper knows it."""

    body: bytes
    is_safe: bool = False
    until_ms: int = 0
    """Until when its last hand-out surely hides it."""
    handle: str = ""
    was_handled: bool = False
    is_done: bool = False
    """Whether its acknowledgement was answered in time."""
    may_double: bool = False
    """Whether it may lie in the log twice: it was sent twice (F32), or its time was over when a
    broker ended or began to lead, which may come between its copy and the record that says so."""


class Popper(Client):
    """Sends, pops and acknowledges, one thing at a time."""

    def __init__(self, group: "Poppers", name: str) -> None:
        super().__init__(group, name, TOPIC, 2)
        self.letters: dict[bytes, Letter] = {}
        self.handles_all = False
        """Whether it acknowledges all that it gets."""
        self.again = 0
        self._held: list[tuple[Letter | None, str]] = []

    def look(self) -> None:
        """A broker ended, or began to lead."""
        for letter in self.letters.values():
            is_due = letter.until_ms and self.group.now_ms >= letter.until_ms - SLACK_MS
            letter.may_double |= bool(is_due) and not letter.is_done

    def _send(self) -> None:
        draw = self._rng.random()
        if self._held and (self.handles_all or draw < 0.4):
            self._ack(*self._held.pop(int(self._rng.random() * len(self._held))))
        elif self.handles_all or draw < 0.7:
            self._pop()
        else:
            self._post()

    def _post(self) -> None:
        letter = Letter(self.group.new_body())
        letter.may_double = self.group.trouble.repeat
        self.letters[letter.body] = letter
        born_ms = self.clock.wall_ms
        header = SendMessageRequestV2(
            "senders", TOPIC, "TBW102", 4, 0, 0, born_ms, 0, properties=""
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, letter.body, fields=write_send(code, header))

        def told(answer: Command | str) -> None:
            letter.may_double |= self.group.trouble.repeat
            letter.is_safe = not isinstance(answer, str) and answer.code == ResponseCode.SUCCESS
            self._sent(letter.body, answer)

        self._ask(self._address, request, told)

    def _pop(self) -> None:
        invisible_ms = INVISIBLE_MS[int(self._rng.random() * len(INVISIBLE_MS))]
        count = 32 if self.handles_all else (1, 3, 32)[int(self._rng.random() * 3)]
        # Without a time of birth: clocks are set.
        header = PopMessageRequest(GROUP, TOPIC, -1, count, invisible_ms, 0, 0, 0)
        request = new_request(RequestCode.POP_MESSAGE, header)
        until_ms = self.group.now_ms + invisible_ms
        self._ask(self._address, request, partial(self._popped, until_ms))

    def _popped(self, until_ms: int, answer: Command | str) -> None:
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            for message, handle in handles_of(answer, BROKER_NAME):
                letter = self.letters.get(bytes(message.body))
                self._held.append((letter, handle))
                if letter is not None:
                    self._came(letter, handle, until_ms)
        self._on(answer, {ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT})

    def _came(self, letter: Letter, handle: str, until_ms: int) -> None:
        assert not letter.is_done or letter.may_double or not self.group.keeps, (
            f"given out after its acknowledgement: {letter}"
        )
        self.again += bool(letter.until_ms)
        letter.until_ms, letter.handle = until_ms, handle

    def _ack(self, letter: Letter | None, text: str) -> None:
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of(TOPIC, GROUP)
        at = handle.queue_offset or 0
        header = AckMessageRequest(GROUP, topic, handle.queue_id, text, at)

        def told(answer: Command | str) -> None:
            if letter is not None:
                letter.was_handled = True
                is_ok = isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS
                # That of another hand-out says nothing of the last one.
                in_time = self.group.now_ms < letter.until_ms - SLACK_MS
                letter.is_done |= is_ok and letter.handle == text and in_time
            self._on(answer, {ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})

        self._ask(self._address, new_request(RequestCode.ACK_MESSAGE, header), told)

    def _on(self, answer: Command | str, expected: set[int]) -> None:
        """What comes next."""
        if isinstance(answer, str) or answer.code not in expected:
            self._address = ""
            self._wait(answer if isinstance(answer, str) else f"{answer.code} {answer.remark}")
            return
        self._busy = False
        pause_ms = 0 if self.handles_all else self.group.think_ms() // 3
        self._next_ms = self.clock.now_ms + pause_ms


class Poppers(Run):
    """One seed."""

    popper_class: type[Popper] = Popper

    def __init__(self, seed: int, about: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(seed, about, **more)
        store = replace(self.settings.store, mapped_file_size_timer_log=5_200)
        self.settings = replace(self.settings, store=store)
        for broker in self.brokers:
            broker.settings = self.settings
        self.popper = self.popper_class(self, "popper")
        self.machines.append(self.popper)
        self.clients.append(self.popper)
        self._looked: tuple[int, int | None] = (0, None)

    @property
    def keeps(self) -> bool:
        """Whether what was answered holds, and comes when it is due."""
        return not self.may_lose and "clock jump" not in self.plan.kinds

    def step(self) -> None:
        """See the base."""
        super().step()
        seen = (self.ends, self.journal.role.epoch)
        if seen != self._looked:
            self._looked = seen
            self.popper.look()

    def broker_ticks(self, broker: GroupBroker) -> None:
        """Deliver timers, and revive what was not acknowledged."""
        context, clock = broker.context, broker.clock

        def serve() -> None:
            for _ in range(TIMER_STEPS):
                if context.timers.step(clock.wall_ms, clock.now_ms) != 0:
                    break
            context.pop.step(clock.wall_ms)

        broker.write(serve)

    def settle(self) -> None:
        """Poppers are there, and handle all they get."""
        super().settle()
        if not self.may_lose and not self.retention:
            popper = self.popper
            popper.active = popper.handles_all = True
            self.until(self._is_handled, ENDS_MS, "a message is not handled")
            popper.active = False
        self.until(self.is_one, ONE_MS, "not one")

    def _is_handled(self) -> bool:
        return all(one.was_handled or not one.is_safe for one in self.popper.letters.values())


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Any:
    """Play one seed."""
    return Poppers(seed, about).play()

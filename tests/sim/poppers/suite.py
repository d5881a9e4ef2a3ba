"""Pop in a simulated group: a popper sends, pops and acknowledges at the master that the name
server knows, through elections, power cuts and lost messages (I16).

A run of its own (`make sim SUITE=poppers`), because a popper's requests would change the stories of
the seeds of `group`. Where no loss is allowed, each message that was sent safely is handled in the
end, and one whose acknowledgement was confirmed in time is not given out again.

In some seeds the popper also deletes topic and group, which are created again, and lowers the
queues of the topic. Messages sent before the deletion may be missing; all later messages must not.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.broker.remakes import LastDeletion, Letter, Remake, Remakes
from tests.sim.group.broker import GroupBroker
from tests.sim.group.machines import GROUP as BROKER_NAME
from tests.sim.group.machines import Client
from tests.sim.group.suite import Run
from tests.sim.ha.checkers import DOOMED
from tests.sim.pops.handles import handles_of
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.pop_handles import PopHandle

TOPIC, GROUP = "A", "poppers"
MAIL, READERS = f"mail-{DOOMED}", f"readers-{DOOMED}"
"""Topic and group that are deleted and created again; the other machines use the first two."""
REMAKES_SALT = 0x9E3A
REMAKE = 0.08
"""Probability of a deletion or lowering at each step, in seeds that have them."""
INVISIBLE_MS = (600, 1_500, 4_000)
TIMER_STEPS = 20
SLACK_MS = 500
"""Clocks of brokers run at rates of their own."""
ENDS_MS = 60_000
ONE_MS = 60_000


class Popper(Client):
    """Sends, pops and acknowledges, one thing at a time."""

    def __init__(self, group: "Poppers", name: str) -> None:
        super().__init__(group, name, TOPIC, 2)
        self.remakes = group.remakes
        is_on = self.remakes.is_on
        self.mail, self.readers = (MAIL, READERS) if is_on else (TOPIC, GROUP)
        self.deletion = LastDeletion(self.mail, self.readers)
        self._may_have_less = False
        """Whether the topic may have fewer queues than messages lie in."""
        self.letters: dict[bytes, Letter] = {}
        self.handles_all = False
        """Whether it acknowledges all that it gets."""
        self.again = 0
        self._held: list[tuple[Letter | None, str]] = []

    def look(self) -> None:
        """A broker ended, or began to lead. A change of queues is lost with a master as a deletion
        is, and nothing in the log replaces that one."""
        self._may_have_less |= self.remakes.is_on
        for letter in self.letters.values():
            is_due = letter.until_ms and self.group.now_ms >= letter.until_ms - SLACK_MS
            letter.may_double |= bool(is_due) and not letter.is_done

    def look_at_copies(self) -> None:
        """A deletion is not in the log, and no table has it where a master dies before its replicas
        copied the tables. The first message after it proves it: messages sent since then have to
        come, perhaps again."""
        if self.deletion.look(self.group.masters()):
            self.deletion.unaware.clear()
            self._forget()
            for letter in self.letters.values():
                letter.may_double = True

    def _not_sure(self) -> None:
        for letter in self.letters.values():
            letter.is_safe = False

    def _send(self) -> None:
        remakes = self.remakes
        if self._may_have_less and self.handles_all:
            self._change_queues(remakes.whole())
            return
        is_calm = not self.handles_all and not self.group.trouble.repeat
        if remakes.is_on and is_calm and remakes.rng.random() < REMAKE:
            self._remake(remakes.draw())
            return
        draw = self._rng.random()
        if self._held and (self.handles_all or draw < 0.4):
            self._ack(*self._held.pop(int(self._rng.random() * len(self._held))))
        elif self.handles_all or draw < 0.7:
            self._pop()
        else:
            self._post()

    def _remake(self, act: Remake) -> None:
        request = self.remakes.request(act)
        if act is Remake.QUEUES:
            self._change_queues(request)
            return
        for letter in self.letters.values():
            letter.leave(is_gone=act is Remake.TOPIC)
        self._forget()

        def on_response(response: Command | str) -> None:
            is_done = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            is_once = not self.group.trouble.repeat
            self.deletion.answered(self.group.brokers, is_done=is_done, is_once=is_once)
            if not self.deletion.is_sure:
                self._not_sure()
            self._on(response, {ResponseCode.SUCCESS})

        self._ask(self._address, request, on_response)

    def _forget(self) -> None:
        """Drop the messages at hand: they belong to a former life."""
        self._held.clear()

    def _change_queues(self, request: Command) -> None:
        self._may_have_less = True

        def on_response(response: Command | str) -> None:
            is_done = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            self._may_have_less = not is_done or self.remakes.has_less
            self._on(response, {ResponseCode.SUCCESS})

        self._ask(self._address, request, on_response)

    def _post(self) -> None:
        letter = Letter(self.group.new_body())
        letter.may_double = self.group.trouble.repeat
        self.letters[letter.body] = letter
        born_ms = self.clock.wall_ms
        queue_id = self.remakes.rng.randrange(2) if self.remakes.is_on else 0
        header = SendMessageRequestV2(
            "senders", self.mail, "TBW102", 4, queue_id, 0, born_ms, 0, properties=""
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, letter.body, fields=write_send(code, header))

        def on_response(response: Command | str) -> None:
            letter.may_double |= self.group.trouble.repeat
            is_taken = not isinstance(response, str) and response.code == ResponseCode.SUCCESS
            letter.is_safe = is_taken and self.deletion.is_sure
            if not isinstance(response, str) and response.code == ResponseCode.INVALID_PARAMETER:
                self._on(response, set())  # the topic has fewer queues by now
            else:
                self._sent(letter.body, response)

        self._ask(self._address, request, on_response)

    def _pop(self) -> None:
        invisible_ms = INVISIBLE_MS[int(self._rng.random() * len(INVISIBLE_MS))]
        count = 32 if self.handles_all else (1, 3, 32)[int(self._rng.random() * 3)]
        # Without a time of birth: clocks are set.
        header = PopMessageRequest(self.readers, self.mail, -1, count, invisible_ms, 0, 0, 0)
        request = new_request(RequestCode.POP_MESSAGE, header)
        until_ms = self.group.now_ms + invisible_ms
        self._ask(self._address, request, partial(self._popped, until_ms))

    def _popped(self, until_ms: int, response: Command | str) -> None:
        if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
            for message, handle in handles_of(response, BROKER_NAME):
                letter = self.letters.get(bytes(message.body))
                self._held.append((letter, handle))
                if letter is not None:
                    self._came(letter, handle, until_ms)
        self._on(response, {ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT})

    def _came(self, letter: Letter, handle: str, until_ms: int) -> None:
        assert not letter.is_done or letter.may_double or not self.group.keeps, (
            f"given out after its acknowledgement: {letter}"
        )
        self.again += bool(letter.until_ms)
        letter.until_ms, letter.handle = until_ms, handle

    def _ack(self, letter: Letter | None, text: str) -> None:
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of(self.mail, self.readers)
        at = handle.queue_offset or 0
        header = AckMessageRequest(self.readers, topic, handle.queue_id, text, at)

        def on_response(response: Command | str) -> None:
            if letter is not None:
                letter.was_handled = True
                is_ok = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
                # An acknowledgement of another hand-out does not concern the last one.
                in_time = self.group.now_ms < letter.until_ms - SLACK_MS
                letter.is_done |= is_ok and letter.handle == text and in_time
            self._on(response, {ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})

        self._ask(self._address, new_request(RequestCode.ACK_MESSAGE, header), on_response)

    def _on(self, response: Command | str, expected: set[int]) -> None:
        """Continue after a response: with the next request, or with a new route after an error."""
        if isinstance(response, str) or response.code not in expected:
            self._address = ""
            self._wait(
                response if isinstance(response, str) else f"{response.code} {response.remark}"
            )
            return
        self._busy = False
        pause_ms = 0 if self.handles_all else self.group.think_ms() // 3
        self._next_ms = self.clock.now_ms + pause_ms


class Poppers(Run):
    """Run of a seed."""

    popper_class: type[Popper] = Popper

    def __init__(self, seed: int, about: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(seed, about, **more)
        store = replace(self.settings.store, mapped_file_size_timer_log=5_200)
        self.settings = replace(self.settings, store=store)
        for broker in self.brokers:
            broker.settings = self.settings
        self.remakes = Remakes(seed, REMAKES_SALT, MAIL, READERS)
        self.popper = self.popper_class(self, "popper")
        self.machines.append(self.popper)
        self.clients.append(self.popper)
        self._looked: tuple[int, int | None] = (0, None)

    @property
    def keeps(self) -> bool:
        """Whether responses must hold, and due messages must be delivered."""
        is_known = not self.may_lose and "clock jump" not in self.plan.kinds
        return is_known and self.popper.deletion.is_sure

    def step(self) -> None:
        """Advance the group, and check copies and masters."""
        super().step()
        self.popper.look_at_copies()
        seen = (self.ends, self.journal.role.epoch)
        if seen != self._looked:
            self._looked = seen
            self.popper.look()

    def broker_ticks(self, broker: GroupBroker) -> None:
        """Deliver timers, and revive unacknowledged messages."""
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
    """Play one seed of this suite."""
    return Poppers(seed, about).play()

"""A seed of the suite of popped messages that escape (RIP-32, enableRemoteEscape): the machines
of the suite `escapes`, and a consumer that pops at all masters.

A message that was sent safely is handled in the end, at any master. A message whose acknowledgement
was confirmed in time is never given out again, though its master dies, a replica acts and others
take its hand-outs (I16), if the replica that acted has the acknowledgement. Duplicates of
unacknowledged messages are no fault: a copy may have arrived whose response did not.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.acting.machines import CALL_TIMEOUT_MS, GROUP, Member
from tests.sim.acting.model import Model
from tests.sim.acting.routing import address_of
from tests.sim.broker.remakes import Letter as RemadeLetter
from tests.sim.escapes import suite as escapes
from tests.sim.escapes.machines import SAVE_MS, EscapingMember, OtherMaster
from tests.sim.group.machines import Process
from tests.sim.pops.handles import handles_of
from turbopump.broker.pop.revive import REVIVE_GROUP
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.pop_handles import PopHandle

if TYPE_CHECKING:
    from tests.sim.escapes.popped import Run

TOPIC, POPPERS = "P", "poppers"
INVISIBLE_MS = (2_500, 4_000, 8_000)
SLACK_MS = 500
ENDS_MS = 90_000
STEADY_MS = 3_000
"""Time after which a master has taken over its replica's state, and the replica's forwarded
messages have arrived.
"""


@dataclass(eq=False)
class Letter(RemadeLetter):
    """A message; `may_double` is also set if its time ended while no master served for long, or
    if the replica that noted it was gone when the master came back.
    """

    may_be_handled: bool = False
    """Whether an acknowledgement of it got no answer: it may have counted."""
    log_end: int = 0
    """End of the master's log when it last gave the message out, or took its acknowledgement."""
    noted_at: str = ""
    """The replica that gave it out, or took its acknowledgement, while it acted; empty once the
    master that is back has served for a while."""


class PoppedMember(EscapingMember):
    """A broker of the group."""

    def begin(self) -> None:
        super().begin()
        self.group.knows(self, TOPIC, POPPERS, 2)


class PoppedOther(OtherMaster):
    """The master of another group, which revives its own hand-outs."""

    def begin(self) -> None:
        super().begin()
        self._saved_ms = self.clock.now_ms
        self.group.knows(self, TOPIC, POPPERS, 2)

    def on_tick(self, now_ms: int) -> None:
        context, wall_ms = self.context, self.clock.wall_ms
        assert context is not None, "it is up"
        context.timers.step(wall_ms, now_ms)
        context.pop.step(wall_ms)
        if now_ms - self._saved_ms >= SAVE_MS and not self.parts.is_saving_offsets:
            self._saved_ms = now_ms
            self.parts.save_offsets()
        super().on_tick(now_ms)


class Popper(Process):
    """Sends to the group's master, pops at any, and acknowledges; one thing at a time."""

    def begin(self) -> None:
        self.is_busy, self._next_ms = False, 0
        self.letters: dict[bytes, Letter] = {}
        self.handles_all = False
        """Whether it acknowledges all that it gets."""
        self.rests = False
        self._held: list[tuple[Letter | None, str, str]] = []
        """Held messages, each with its handle and the name of the broker that gave it."""
        self.escaped = self.again = 0
        self.noted = 0
        """Acknowledgements that replicas took while they acted."""

    def on_tick(self, now_ms: int) -> None:
        group = self.group
        for one in group.brokers:
            if one.up and one.context.role.is_acting:
                self._acted(one)
        self._look_at_notes()
        if not group.is_steady:
            for letter in self.letters.values():
                is_due = letter.until_ms and group.now_ms >= letter.until_ms - SLACK_MS
                letter.may_double |= bool(is_due) and not letter.is_done
        if self.rests or self.is_busy or now_ms < self._next_ms or group.waits:
            return
        self.is_busy, rng = True, group.rng
        draw = rng.random()
        if self._held and (self.handles_all or draw < 0.25):
            self._ack(*self._held.pop(int(rng.random() * len(self._held))))
        elif draw < 0.65 or self.handles_all:
            names = [GROUP, *(one.name for one in group.others)]
            name = names[int(rng.random() * len(names))]
            self._at(name, partial(self._pop, name))
        else:
            self._at(GROUP, self._post)

    def _look_at_notes(self) -> None:
        """Update the notes of replicas: they are lost with the replica, and with the master once it
        has served.
        """
        up = {one.name for one in self.group.brokers if one.up}
        for letter in self.letters.values():
            if letter.noted_at and letter.noted_at not in up:
                letter.may_double = True
            if self.group.is_steady:
                letter.noted_at = ""

    def _acted(self, replica: Member) -> None:
        """Note that a replica acts: operations that it does not know of may be done again."""
        end = replica.context.store.max_log_offset
        for letter in self.letters.values():
            letter.may_double |= letter.log_end > end

    def _at(self, name: str, then) -> None:
        """Do that at the master of a group, or the replica that acts for it."""
        names = self.group.names[int(self.group.rng.random() * len(self.group.names))]

        def routed(response: Command | str) -> None:
            address = address_of(response, name)
            if address:
                then(address)
            else:
                self._done(300)

        self._ask(names.endpoint.address, self.group.route(TOPIC), routed)

    def _ask(self, address: str, request: Command, then) -> None:
        self.endpoint.call(address, request, CALL_TIMEOUT_MS).then(then)

    def _post(self, address: str) -> None:
        letter = Letter(b"letter-%d" % len(self.letters))
        self.letters[letter.body] = letter
        operator = self.group.operator
        queue_id = 0 if operator is None else operator.remakes.rng.randrange(2)
        header = SendMessageRequestV2(
            "PG", TOPIC, "TBW102", 4, queue_id, 0, self.clock.wall_ms, 0, properties=""
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, letter.body, fields=write_send(code, header))

        def on_response(response: Command | str) -> None:
            letter.is_safe = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            letter.is_safe &= operator is None or operator.is_sure
            self._done(80)

        self._ask(address, request, on_response)

    def _pop(self, name: str, address: str) -> None:
        rng, now_ms = self.group.rng, self.group.now_ms
        invisible_ms = INVISIBLE_MS[int(rng.random() * len(INVISIBLE_MS))]
        count = 32 if self.handles_all else (1, 3)[int(rng.random() * 2)]
        header = PopMessageRequest(POPPERS, TOPIC, -1, count, invisible_ms, 0, 0, 0)
        request = new_request(RequestCode.POP_MESSAGE, header)

        def popped(response: Command | str) -> None:
            if not isinstance(response, Command):
                self._may_have_come()
            if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
                for message, handle in handles_of(response, name):
                    letter = self.letters.get(bytes(message.body))
                    self._held.append((letter, handle, name))
                    if letter is not None:
                        self._came(letter, handle, now_ms + invisible_ms, name, address)
            self._done(80)

        self._ask(address, request, popped)

    def _may_have_come(self) -> None:
        """Note a lost response to a pop: its messages are given out again, and may have left by
        then.
        """
        for letter in self.letters.values():
            letter.may_double |= self.group.now_ms >= letter.until_ms - SLACK_MS

    def _came(self, letter: Letter, handle: str, until_ms: int, name: str, address: str) -> None:
        group = self.group
        is_known = not group.has_cuts and (group.operator is None or group.operator.is_sure)
        assert not letter.is_done or letter.may_double or not is_known, (
            f"{name} gives out what was acknowledged (I16): {letter}"
        )
        self.again += bool(letter.until_ms)
        self.escaped += name != GROUP
        letter.until_ms, letter.handle = until_ms, handle
        self._note(letter, name, address)

    def leave(self, *, is_gone: bool) -> None:
        """Drop held messages before the topic or the group is deleted."""
        for letter in self.letters.values():
            letter.leave(is_gone=is_gone)
        self._held.clear()

    def _note(self, letter: Letter, name: str, address: str) -> bool:
        """Note the last broker that handled a letter; return whether it is a replica."""
        master = self.group.brokers[0]
        if name != GROUP:
            return False
        if address != master.endpoint.address:
            at = next(one for one in self.group.brokers if one.endpoint.address == address)
            letter.noted_at = at.name
            if at.context is not None:
                letter.log_end = max(letter.log_end, at.context.store.max_log_offset)
            return True
        if master.context is not None:
            letter.log_end = master.context.store.max_log_offset
        letter.may_double |= master.context is None
        return False

    def _ack(self, letter: Letter | None, text: str, name: str) -> None:
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of(TOPIC, POPPERS)
        at = handle.queue_offset or 0
        header = AckMessageRequest(POPPERS, topic, handle.queue_id, text, at)

        def on_response(address: str, response: Command | str) -> None:
            is_ok = isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            if letter is not None and not isinstance(response, Command):
                letter.may_be_handled = True
            if letter is not None and is_ok:
                letter.was_handled = True
                in_time = self.group.now_ms < letter.until_ms - SLACK_MS
                letter.is_done |= letter.handle == text and in_time
                self.noted += self._note(letter, name, address)
            self._done(60)

        request = new_request(RequestCode.ACK_MESSAGE, header)
        self._at(name, lambda address: self._ask(address, request, partial(on_response, address)))

    def _done(self, pause_ms: int) -> None:
        self.is_busy = False
        pause_ms = 20 if self.handles_all else int(self.group.rng.random() * pause_ms)
        self._next_ms = self.clock.now_ms + pause_ms


class PopModel(escapes.EscapeModel):
    """The model of escapes, with the progress of revival."""

    def serves(self, master: Member) -> None:
        super().serves(master)
        known = master.replicating.acting.members.members.values()
        mine = _revived(master)
        for other in [] if self._group.has_cuts else self._listed(master):
            if other.endpoint.address in known:
                for queue_id, at in _revived(other).items():
                    assert mine.get(queue_id, -1) >= at, (
                        f"{master.name} serves with {mine}, {other.name} has revived {at} (I13)"
                    )


def _revived(broker: Member) -> dict[int, int]:
    context = broker.context
    assert context is not None, "it is up"
    return dict(context.offsets.queues_of(REVIVE_GROUP, context.pop.log.topic))


class Run(escapes.Run):
    """Run of a seed."""

    member_class, other_class = PoppedMember, PoppedOther
    remade = (TOPIC, POPPERS)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = PopModel(self)
        self.popper = Popper(self, "popper")
        self._unsteady_ms = 0

    @property
    def machines(self) -> list:
        """All machines, with the popper."""
        return [*super().machines, self.popper]

    @property
    def is_steady(self) -> bool:
        """Whether its master has served for a while."""
        return self.now_ms - self._unsteady_ms > STEADY_MS

    def _come_back(self) -> None:
        super()._come_back()
        up = [one for one in (*self.brokers, *self.others) if one.up]
        is_well = len(up) == len(self.brokers) + len(self.others)
        if not (is_well and self.brokers[0].context.role.may_change_offsets):
            self._unsteady_ms = self.now_ms

    def clients(self) -> list:
        return [self.popper]

    def leaves(self, *, is_gone: bool) -> None:
        self.popper.leave(is_gone=is_gone)

    def is_unsure(self) -> None:
        for letter in self.popper.letters.values():
            letter.is_safe = False

    def _heal(self) -> None:
        super()._heal()
        self.popper.rests = True  # until all is seen to be one

    def _trouble(self) -> None:
        if self.brokers[0].up and self.rng.random() < 0.5:  # popped messages become due meanwhile
            self._end(self.brokers[0], 8_000, at_least_ms=8_000)
        else:
            super()._trouble()

    def play(self) -> Model:
        """Play the whole seed; AssertionError is a finding."""
        model = super().play()
        model.acked += sum(one.was_handled for one in self.popper.letters.values())
        return model

    def _check(self) -> None:
        super()._check()
        self.popper.handles_all, self.popper.rests = True, False
        end_ms = self.now_ms + ENDS_MS
        while self._left():
            assert self.now_ms < end_ms, f"never handled: {self._left()[:5]} (I16)"
            self._pass(500)

    def _left(self) -> list[Letter]:
        waiting = [one for one in self.popper.letters.values() if one.is_safe]
        return [one for one in waiting if not (one.was_handled or one.may_be_handled)]


def run_seed(seed: int) -> Popper:
    """Play one seed of this suite."""
    run = Run(seed)
    run.play()
    return run.popper

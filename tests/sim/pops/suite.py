"""A seed of the suite of pops (I16): consumers that pop, a broker, and power cuts.

The real parts of a broker over the simulated disk, on virtual time. Consumers acknowledge soon,
late, twice or never, change a message's time, and lose responses. The broker ends by power cuts and
kills, anywhere. In half of the seeds without syncs the fast lane serves the requests that it can.
Some seeds remake topic and group, pop with a filter, lower the queues of the topic, change
reviveQueueNum between two lives, or step the clock back. `model.py` has the invariants.
"""

import random
from typing import Self

from tests.sim.broker.lives import TICK_MS, BrokerLives, SilentLink
from tests.sim.broker.remakes import Remake, Remakes
from tests.sim.pops.handles import handles_of
from tests.sim.pops.model import Message, Model
from tests.sim.pops.native import NativeAsker
from turbopump.broker.pop.revive import ReviveQueue
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.pop_handles import PopHandle

SETTLE_MS = 60_000
TROUBLED = 1_000
"""First seed from which half of the seeds delete and create topic and group again, and half of them
pop with a filter. Lower seeds play as before.
"""
WEAR_SALT = 0x3EA2
"""Salt of the generator for the other changes in those seeds: queues of topic and revive topic, and
the clock.
"""
REVIVE_QUEUES = (1, 2, 8)
STEPS_BACK_MS = (700, 2_000, 5_000)
INVISIBLE_MS = (300, 1_500, 1_500, 6_000, 20_000)


class Link(SilentLink):
    """The consumers' connection, which ignores notifications."""

    def send(self, command: Command) -> None:
        pass


class Run(BrokerLives):
    """Run of a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        is_sync = rng.random() < 0.7
        self._is_native = not is_sync and seed % 2 == 0
        self.configure(
            # A native pop leaves the end of a log file to the handler.
            mappedFileSizeCommitLog=65_536 if self._is_native else 16_384,
            is_sync=is_sync,
            mappedFileSizeConsumeQueue=800,
            reviveQueueNum=rng.choice(REVIVE_QUEUES),
            popFromRetryProbability=rng.choice((0, 20, 100)),
            enableRetryTopicV2=rng.choice(("true", "false")),
        )
        self.model = Model(is_sync)
        trouble = random.Random(f"lives {seed}")
        is_troubled = seed >= TROUBLED
        self._remakes = is_troubled and trouble.random() < 0.5
        self._filters = is_troubled and trouble.random() < 0.5
        self._trouble = trouble
        wear = self._wear = random.Random(seed ^ WEAR_SALT)
        self._lowers, self._revive_changes, self._steps_back = (
            is_troubled and wear.random() < 0.4 for _ in range(3)
        )
        self._remade = Remakes(seed, WEAR_SALT, "T", "g")
        self._back_ms = 0
        """Total time by which the clock went back."""
        self._old_handles: list[str] = []
        self._keeps_retries = False
        """Whether the group was deleted: while it has no offsets its retry topic does not go with
        the topic (as in RocketMQ, which finds retry topics by offsets)."""
        self._life_number = 0
        """Number of deletions of the topic, or of the group with its offsets."""
        self._asker: NativeAsker | None = None
        self.native_pops = 0

    @property
    def acked(self) -> int:
        return self.model.acked

    def _new_link(self) -> Link:
        return Link()

    def _opened(self) -> None:
        self._asker = NativeAsker(self.broker, self._by_handlers) if self._is_native else None

    def _ask(self, code: int, header: object, body: bytes = b"") -> Deferred[Command | None]:
        return self._request(new_request(code, header, body))

    def _request(self, request: Command) -> Deferred[Command | None]:
        if self._asker is None:
            return self._by_handlers(request)
        return self._asker.ask(request)

    def _end_asker(self) -> None:
        if self._asker is not None:
            self.native_pops += self._asker.fast_lane.pops.pop_count
            self._asker.end()
            self._asker = None

    def play(self) -> Self:
        """Play all lives; AssertionError is a finding."""
        try:
            return super().play()
        finally:
            self._end_asker()

    def _ended(self, *, power: bool) -> None:
        self._end_asker()
        self.model.ended(power=power, reviving=self._was_in(ReviveQueue._revive_messages))
        if self._revive_changes and self._wear.random() < 0.6:
            self._change_revive_queues()

    def _change_revive_queues(self) -> None:
        lines = [line for line in self.text.splitlines() if "reviveQueueNum" not in line]
        lines.append(f"reviveQueueNum={self._wear.choice(REVIVE_QUEUES)}")
        self.text = "\n".join(lines) + "\n"

    def _pass(self, duration_ms: int) -> None:
        super()._pass(duration_ms)
        self.model.seen(self.now_ms)

    def _settle(self) -> None:
        """Let consumers acknowledge without trouble until each message ends."""
        self._open()
        if self._lowers:
            self._request(self._remade.whole())
        for number in range((SETTLE_MS + self._back_ms) // TICK_MS):
            self._tick()
            self.work.close()
            if number % 5 == 0:
                self._pop(sure=True)
            self._turn()
        self.model.settled()

    # Steps

    def _act(self) -> None:
        rng = self.rng
        if self._remakes and self._trouble.random() < 0.05:
            (self._delete_topic if self._trouble.random() < 0.7 else self._delete_group)()
            if self._old_handles and self._trouble.random() < 0.5:
                self._ack_old(self._trouble.choice(self._old_handles))
        if self._lowers and self._wear.random() < 0.05:
            self._request(self._remade.request(Remake.QUEUES))
        if self._steps_back and self._wear.random() < 0.05:
            step_ms = self._wear.choice(STEPS_BACK_MS)
            self.skew_ms -= step_ms
            self._back_ms += step_ms
        draw = rng.random()
        if draw < 0.2:
            for _ in range(5 if self._is_native else 1):
                self._send()
        elif draw < 0.45:
            self._pop()
            if rng.random() < 0.1:
                self._save_at_once()
        elif draw < 0.7:
            self._use_one()
        elif draw < 0.73:
            self.disk.writeback()
        else:
            self._work_some()
        if rng.random() < 0.7:
            self._turn()

    def _save_at_once(self) -> None:
        """Save offsets before the appended records are synced, as a disk does that is slow with the
        log.
        """
        before = len(self.work.jobs)
        if not self._parts.is_saving_offsets:
            self._parts.save_offsets()
        for job in self.work.jobs[before:]:
            job.wait_and_report()
        if self.rng.random() < 0.3:
            self.disk.cut_after = 0

    def _serve(self) -> None:
        # Where the clock steps back timers are late, too: a loop that has much to do.
        if not self._steps_back or self._wear.random() < 0.6:
            self._deliver_timers()
        self.broker.pop.step(self.now_ms)

    def _send(self) -> None:
        message = Message(len(self.model.messages), self._life_number)
        self.model.messages.append(message)
        is_other = self._filters and self._trouble.random() < 0.5
        tag = ("B" if is_other else "A") if self._filters else ""
        header = SendMessageRequestV2(
            "PG", "T", "TBW102", 2, self.rng.randrange(2), 0, self.now_ms, 0,
            properties=f"TAGS\x01{tag}\x02" if tag else "",
        )  # fmt: skip
        message.is_wanted = not is_other

        def on_response(response: Command | None) -> None:
            message.is_safe = (
                response is not None and response.code == 0 and not message.may_be_gone
            )

        body = b"%d %s" % (message.number, b"x" * 30)
        self._ask(RequestCode.SEND_MESSAGE_V2, header, body).then(on_response)

    def _pop(self, *, sure: bool = False) -> None:
        rng, invisible_ms = self.rng, self.rng.choice(INVISIBLE_MS)
        # Few at a time: the handler serves a pop that finds no messages.
        count = 32 if sure else rng.choice((1, 1, 3) if self._is_native else (1, 3, 32))
        header = PopMessageRequest("g", "T", -1, count, invisible_ms, 0, self.now_ms, 0)
        if self._filters:
            header.exp, header.exp_type = "A", "TAG"
        began_ms, life = self.now_ms, self._life_number

        def on_response(response: Command | None) -> None:
            if response is None or response.code != 0:
                return
            for message, handle in self._messages(response):
                self.model.popped(message, began_ms, began_ms + invisible_ms, life)
                message.handles.append(handle)
                if sure:
                    self._ack(message, handle)

        self._ask(RequestCode.POP_MESSAGE, header).then(on_response)

    def _messages(self, response: Command) -> list[tuple[Message, str]]:
        name = self.broker.config.broker_name
        return [
            (self.model.messages[int(each.body.split()[0])], handle)
            for each, handle in handles_of(response, name)
        ]

    def _ack_old(self, text: str) -> None:
        """A consumer that was away acknowledges by a handle of a former life."""
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of("T", "g")
        header = AckMessageRequest("g", topic, handle.queue_id, text, handle.queue_offset or 0)

        def on_response(response: Command | None) -> None:
            is_taken = response is not None and response.code == 0
            assert not is_taken, f"acknowledged by a handle of a former life: {text}"

        self._ask(RequestCode.ACK_MESSAGE, header).then(on_response)

    def _delete_topic(self) -> None:
        """Delete the topic with its messages; the next send creates it again."""
        handles = self._held_handles()
        gone = self.model.leave(self.model.messages)

        def on_response(response: Command | None) -> None:
            if response is not None and response.code == 0:
                self._life_number += 1
                self._old_handles += handles
                for message in [] if self._keeps_retries else gone:
                    message.gone_in = self._life_number

        self._request(self._remade.request(Remake.TOPIC)).then(on_response)

    def _delete_group(self) -> None:
        """The next pop makes it, and gets all messages of the topic, those acknowledged too."""
        handles = self._held_handles()
        self.model.leave(self.model.messages, keep=True)
        self._keeps_retries = True

        def on_response(response: Command | None) -> None:
            if response is not None and response.code == 0:
                self._life_number += 1
                self._old_handles += handles
                self.model.given_back()

        self._request(self._remade.request(Remake.GROUP)).then(on_response)

    def _held_handles(self) -> list[str]:
        return [text for message in self.model.messages for text in message.handles]

    def _use_one(self) -> None:
        """A consumer has handled a message, or wants more time for it."""
        held = [message for message in self.model.messages if message.handles]
        if not held:
            return
        message = held[-1 - min(int(self.rng.expovariate(0.3)), len(held) - 1)]
        handle = message.handles[-1]
        if self.rng.random() < 0.8:
            self._ack(message, handle)
        else:
            self._change(message, handle)

    def _ack(self, message: Message, text: str) -> None:
        message.was_handled = True
        handle = PopHandle.parse(text)
        topic = handle.kind.topic_of("T", "g")
        header = AckMessageRequest("g", topic, handle.queue_id, text, handle.queue_offset or 0)

        def on_response(response: Command | None) -> None:
            # A handle that was changed meanwhile is no longer the message's.
            if response is not None and response.code == 0 and message.handles[-1:] == [text]:
                until_ms = handle.pop_time_ms + handle.invisible_ms
                self.model.done(message, until_ms)

        self._ask(RequestCode.ACK_MESSAGE, header).then(on_response)

    def _change(self, message: Message, text: str) -> None:
        handle = PopHandle.parse(text)
        invisible_ms = self.rng.choice(INVISIBLE_MS)
        offset = handle.queue_offset or 0
        topic = handle.kind.topic_of("T", "g")
        header = ChangeInvisibleTimeRequest("g", topic, handle.queue_id, text, offset, invisible_ms)
        if message.seen_ms >= handle.pop_time_ms + handle.invisible_ms or message.is_done:
            return  # it may be on its way to another consumer
        message.until_ms = 0
        message.handles.clear()
        message.is_changing = True

        def on_response(response: Command | None) -> None:
            message.is_changing = False
            if response is None or response.code != 0 or message.handles:
                return
            new = read_header(ChangeInvisibleTimeResponse, response.fields)
            until_ms = handle.pop_time_ms + handle.invisible_ms
            if message.seen_ms < until_ms:
                message.until_ms = new.pop_time + new.invisible_time
                place = f"{handle.kind.value} {handle.broker_name} {handle.queue_id} {offset}"
                message.handles.append(
                    f"{offset} {new.pop_time} {new.invisible_time} {new.revive_qid} {place}"
                )

        self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).then(on_response)


def run_seed(seed: int) -> Run:
    """Play one seed of this suite."""
    return Run(seed).play()

"""Machines of a group whose replicas forward due messages to masters of other groups: brokers that
deliver and save their progress, other masters, and a producer of delayed messages and timers.
"""

from functools import partial
from typing import TYPE_CHECKING

from tests.sim.acting.machines import CALL_TIMEOUT_MS, TOPIC, BrokerMachine, Member
from tests.sim.acting.routing import address_of
from tests.sim.broker.parts import ROOT
from tests.sim.group.machines import Process
from tests.sim.ha.net import Wire
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.registration.registration import Registration, Work
from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.properties import encode_properties

if TYPE_CHECKING:
    from tests.sim.escapes.suite import Run

SAVE_MS = 1_000
REGISTER_MS = 2_000
TEXT = (
    f"storePathRootDir={ROOT}\nbrokerName=%s\nbrokerIP1=127.0.0.1\nnamesrvAddr=%s\n"
    "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=800\nmaxHashSlotNum=16\n"
    "maxIndexNum=40\nregisterNameServerPeriod=10000\n"
    "mappedFileSizeTimerLog=65536\n"
)


class EscapingMember(Member):
    """A broker of the group."""

    def __init__(self, group: "Run", number: int) -> None:
        super().__init__(group, number)
        self.text += "enableRemoteEscape=true\ndelayOffsetUpdateVersionStep=2\n"
        self._delay_ms = 0

    def begin(self) -> None:
        self._delay_ms = self.clock.now_ms
        super().begin()

    def on_tick(self, now_ms: int) -> None:
        context = self.context
        assert context is not None, "it is up"
        context.timers.step(self.clock.wall_ms, now_ms)
        context.waiting.step(now_ms)
        if now_ms - self._delay_ms >= SAVE_MS:
            self._delay_ms = now_ms
            context.delay.begin_save()
        self.parts.save_table(
            DELAY_FILE, context.delay.take_unsaved_content, context.delay.save_failed
        )
        context.pop.step(self.clock.wall_ms)
        super().on_tick(now_ms)


class OtherMaster(BrokerMachine):
    """The master of another group; its disk keeps everything over a kill."""

    def __init__(self, group: "Run", name: str) -> None:
        super().__init__(group, name)
        names = ";".join(one.endpoint.address for one in group.names)
        self.text = TEXT % (name, names)

    def begin(self) -> None:
        config, _ = load_config(self.text)
        self.work, self.wire = QueuedDisk(self.group.rng, self.disk), Wire(self.group.net, self)
        self.parts = self.make_parts(config)
        self.context = self.parts.context
        self.group.knows(self, TOPIC, "", 1)
        self.registration = Registration(
            config, self.parts.topics, self.endpoint.address, lambda: 0
        )
        self._registered_ms = self.clock.now_ms - REGISTER_MS

    def open_store(self, config: BrokerConfig) -> Store:
        wall_ms, steady_ms = self.clock.wall_ms, self.clock.now_ms
        store = Store.open(self.disk, config.store, self.work, wall_ms, steady_ms=steady_ms)
        store.stand_alone(wall_ms)
        return store

    def on_tick(self, now_ms: int) -> None:
        assert self.context is not None, "it is up"
        self.context.store.tick(self.clock.wall_ms, now_ms)
        for _ in range(3):
            self.work.step()
        if now_ms - self._registered_ms >= REGISTER_MS:
            self._registered_ms = now_ms
            _count, make = self.registration.begin_request(Work(True, []))
            for one in self.group.names:
                later = self.endpoint.call(one.endpoint.address, make(), CALL_TIMEOUT_MS)
                later.then(lambda _answer: None)


class Sender(Process):
    """Sends delayed messages and timers to the group's master, one at a time."""

    def begin(self) -> None:
        self.is_busy, self._next_ms, self._address = False, 0, ""

    def on_tick(self, now_ms: int) -> None:
        if self.is_busy or now_ms < self._next_ms or not self.group.is_sending:
            return
        if self.group.waits:
            return
        self.is_busy = True
        if not self._address:
            names = self.group.names[int(self.group.rng.random() * len(self.group.names))]
            self._ask(names.endpoint.address, self.group.route(), self._routed)
            return
        rng, born_ms = self.group.rng, self.clock.wall_ms
        delay_ms = 1_000 + int(rng.random() * 9_000)
        if rng.random() < 0.5:
            properties = {"TIMER_DELIVER_MS": str(born_ms + delay_ms)}
        else:
            level = 1 + int(rng.random() * 3)
            properties = {"DELAY": str(level)}
            delay_ms = (1_000, 5_000, 10_000)[level - 1]
        body = b"%d" % self.group.reminded.count
        text = encode_properties(properties).decode()
        operator = self.group.operator
        queue_id = 0 if operator is None else operator.remakes.rng.randrange(2)
        header = SendMessageRequestV2(
            "PG", TOPIC, "TBW102", 4, queue_id, 0, born_ms, 0, properties=text
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, body, fields=write_send(code, header))
        self.group.reminded.sent(body, born_ms + delay_ms)
        self._ask(self._address, request, partial(self._sent, body))

    def _ask(self, address: str, request: Command, then: object) -> None:
        later: Deferred[Command | str] = self.endpoint.call(address, request, CALL_TIMEOUT_MS)
        later.then(then)  # type: ignore[arg-type]

    def _routed(self, response: Command | str) -> None:
        self._address = address_of(response)
        self._done()

    def _sent(self, body: bytes, response: Command | str) -> None:
        if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
            if self.group.operator is None or self.group.operator.is_sure:
                self.group.reminded.acked(body)
        else:
            self._address = ""
        self._done()

    def _done(self) -> None:
        self.is_busy = False
        self._next_ms = self.clock.now_ms + int(self.group.rng.random() * 400)

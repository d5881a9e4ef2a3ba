"""Timers and delay levels in a simulated group: their sender sends to the master that the name
server knows, through elections, power cuts, lost messages and clocks that are set (I14, F29).

A run of its own (`make sim SUITE=reminders`), as payments is. Where no loss is allowed, each
acknowledged message is delivered at least once, by a master with a lease, and never before its time
by the clock of the broker that delivers it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.broker.due_times import DueTimes, bodies
from tests.sim.group.machines import Client
from tests.sim.group.suite import Plan, Run
from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.engine.types import LogOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.properties import encode_properties

if TYPE_CHECKING:
    from tests.sim.group.broker import GroupBroker

TOPIC = "A"
DELAYS_MS = (300, 1_000, 1_700, 4_000, 9_000)
LEVELS = 2
"""Number of delay levels, of some seconds each."""
TIMER_LOG = 700
PAUSE_MS, MOST = 50, 80
"""Pause between sends and maximum of reminders: with more, a broker with a slow disk would not
catch up in time.
"""
COMES_MS = 60_000
TIMES, STALLS_MS = 3, 1_300
"""Number and length of the stalls of replication: a replica without progress for longer leaves the
set.
"""
LOOK_MS = 50


@dataclass(eq=False)
class Reminder:
    """A message, as its sender knows it."""

    body: bytes
    properties: dict[str, str]
    is_safe: bool = False


class Reminding(Client):
    """Sends timers and delayed messages, one at a time."""

    def __init__(self, group: "Reminders", name: str) -> None:
        super().__init__(group, name, TOPIC, 2)
        self.reminders: list[Reminder] = []

    def _send(self) -> None:
        rng, born_ms = self._rng, self.clock.wall_ms
        delay_ms = DELAYS_MS[int(rng.random() * len(DELAYS_MS))]
        kind = int(rng.random() * 3)
        if kind == 0:
            properties = {"TIMER_DELIVER_MS": str(born_ms + delay_ms)}
        elif kind == 1:
            properties = {"TIMER_DELAY_MS": str(delay_ms)}
        else:
            properties = {"DELAY": str(1 + int(rng.random() * LEVELS))}
        reminder = Reminder(self.group.new_body(), properties)
        self.reminders.append(reminder)
        text = encode_properties(properties).decode()
        header = SendMessageRequestV2("PG", TOPIC, "TBW102", 4, 0, 0, born_ms, 0, properties=text)
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, reminder.body, fields=write_send(code, header))
        self._ask(self._address, request, partial(self._taken, reminder))

    def _taken(self, reminder: Reminder, response: Command | str) -> None:
        reminder.is_safe = not isinstance(response, str) and response.code == ResponseCode.SUCCESS
        self._sent(reminder.body, response)
        self._next_ms = min(self._next_ms, self.clock.now_ms + PAUSE_MS)
        self.active = self.active and len(self.reminders) < MOST


class Reminders(Run):
    """Run of a seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(seed, about, **more)
        store = replace(self.settings.store, mapped_file_size_timer_log=TIMER_LOG)
        self.settings = replace(self.settings, store=store)
        for broker in self.brokers:
            broker.settings = self.settings
        self.sender = Reminding(self, "reminding")
        self.machines.append(self.sender)
        self.due = DueTimes(TOPIC)
        self.looked_ms = 0

    # Steps of its brokers

    def broker_ticks(self, broker: "GroupBroker") -> None:
        """Deliver, and save how far."""
        context, clock = broker.context, broker.clock
        end = broker.store.max_log_offset
        broker.write(partial(context.timers.step, clock.wall_ms, clock.now_ms))
        if broker.up:
            broker.write(partial(context.delay.step, clock.wall_ms))
        if broker.up:
            self.due.check(broker.name, broker.log, end, broker.store.max_log_offset, clock.wall_ms)
            context.delay.begin_save()
            delay = context.delay
            broker.tables.save_table(DELAY_FILE, delay.take_unsaved_content, delay.save_failed)

    def broker_wrote(self, broker: "GroupBroker", start: LogOffset) -> None:
        """Note the due times of the messages that a broker took."""
        self.due.note(broker.log, start, broker.store.max_log_offset, broker.clock.wall_ms)

    def broker_stopped(self, broker: "GroupBroker") -> None:
        """Save the rest of the state after the store was closed."""
        broker.context.delay.save()
        broker.context.timers.close()

    # Checks

    def settle(self) -> None:
        """Advance all clocks until every reminder is due, and check that each is delivered."""
        self.sender.active = False
        super().settle()
        clocks = [broker.clock for broker in self.brokers]
        last_ms = max([clock.wall_ms for clock in clocks] + list(self.due.due_ms.values()))
        for clock in clocks:
            clock.ahead_ms += last_ms - clock.wall_ms
        self.until(self._is_over, COMES_MS, "a reminder does not come")
        self.until(self.is_one, COMES_MS, "not one")

    def _is_over(self) -> bool:
        masters = self.masters()
        if self.now_ms < self.looked_ms + LOOK_MS or len(masters) != 1:
            return False
        self.looked_ms = self.now_ms
        if self.may_lose or self.retention:
            status = masters[0].context.timers.status(masters[0].clock.wall_ms)
            return not status.offset_behind and status.next_due_ms is None
        shown = set(bodies(masters[0].store, TOPIC))
        return all(one.body in shown for one in self.sender.reminders if one.is_safe)


class LateCopies(Reminders):
    """A seed that plays a story several times: connections of replication stall while tables are
    copied, and the master is killed, so that the next one lacks the latest deliveries.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, plan=Plan((), timeout_ms=1_000))

    def play(self) -> Any:
        self.begin()
        for _ in range(TIMES):
            self.until(self.is_whole, COMES_MS, "not whole")
            self.go(1_000 + int(self.rng.random() * 3_000))
            (master,) = self.masters()
            for link in self.net.links:
                if any(host in self.brokers for host in link.hosts):
                    for pipe in link.pipes:
                        pipe.stalled_until_ms = self.now_ms + STALLS_MS
            self.go(STALLS_MS - 100)
            master.crash(power=False)
            self.go(3_000)
            self.start(master)
        self.settle()
        self.check()
        return self.played


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Any:
    """Play one seed of this suite."""
    return Reminders(seed, about).play()


def run_late_copies(seed: int) -> Any:
    """Play one seed of that story."""
    return LateCopies(seed).play()

"""Other messages that some seeds of the replication suite carry: timers, delay levels and
transactions, with clocks that are set (I14, I15, F29).

`CarriedParts` holds the parts of a broker for them in one life, all real: handlers, timers, delay
levels, half messages, and the follower that copies a master's tables. Its requests reach the other
broker at a tick and the responses arrive at the next one, unless the network separates the two.
`Carried` sends messages and checks: no message is delivered before its time by the clock of the
broker that delivers it, and where no loss is allowed every acknowledged message is delivered in the
end, each transaction by its sender's decision and at most once.

A separate random generator decides which seeds carry them, so that all others keep their stories.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.shortcuts.addresses import pack_host
from tests.sim.broker.due_times import DueTimes, bodies
from tests.sim.broker.parts import SimParts
from tests.sim.ha.settings import Settings
from tests.sim.transactions.payment import Payment
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.config.replication_config import BrokerRole, ReplicationConfig
from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.ha.service import HaService
from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import SendMessageRequestV2, SendMessageResponse, write_send
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.names import GIVEN_UP_TOPIC
from turbopump.net.wire.properties import encode_properties

if TYPE_CHECKING:
    from tests.sim.ha.broker import Broker
    from tests.sim.ha.suite import Run

SALT, SHARE = 0x7133, 0.1
CARRIED = "carried"
"""A seed that has to know this trouble does, whatever was drawn."""
TOPIC, PAYERS = "C", "payers"
DELAYS_MS = (100, 1_000, 4_000, 15_000)
LEVELS = 2
TIMER_LOG = 700
COMMIT, ROLL_BACK, PREPARED = 8, 12, 4
JUMPS_MS = (-3_600_000, -5_000, 5_000, 3_600_000)
OVER_MS = 60_000
AT_MOST = 30
"""Things sent: with many more of them a seed is all about these."""


def carries(seed: int) -> bool:
    """Whether a seed does."""
    return random.Random(seed ^ SALT).random() < SHARE


def carrying(settings: Settings) -> Settings:
    """Settings with the message index, without which a broker cannot find transactions whose op
    message a crash lost.
    """
    store = settings.store
    store = replace(store, mapped_file_size_timer_log=TIMER_LOG, message_index_enable=True)
    return replace(settings, store=store)


class CarriedParts:
    """Parts of a broker's life for the carried messages (see the module); used only through
    `Broker.run`.
    """

    def __init__(self, broker: "Broker", group: "Run", store: Store) -> None:
        config = _config(broker)
        self._broker, self._group = broker, group
        self._parts = SimParts(
            config,
            lambda: store,
            broker.disk,
            broker.work,
            group.rng,
            wall_ms=lambda: broker.wall_ms,
            steady_ms=lambda: group.now_ms,
            call_soon=broker.wire.call_soon,
            address=broker.name,
            is_registered=True,
        )
        self.context = self._parts.context
        self.metadata = MetadataFollower(self.context, self._call, log=broker.replicated)
        broker.replicated.on_cut.append(lambda: self.metadata.on_truncated(broker.wall_ms))
        self.peer = Peer(
            "127.0.0.1:4711", pack_host("127.0.0.1:4711"), _Link(broker, group.carried)
        )
        self._calls: list[tuple[str, Command, Deferred[Command | str]]] = []
        self._answers: list[Callable[[], None]] = []

    def role_changed(self, service: HaService) -> None:
        """Change the role as broker/lifecycle/replication_setup.py does."""
        term, role = service.term, self.context.role
        if term is not None:
            self.metadata.begin_leading(service.epoch, self._broker.wall_ms)
            role.become_master(term)
        else:
            role.become_replica(max(self._broker.number, 1))
            self._follow(service)

    def _follow(self, service: HaService) -> None:
        if not service.is_master:
            self.metadata.begin_following(service.master_address, service.epoch, self._group.now_ms)

    # Between brokers

    def _call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        later: Deferred[Command | str] = Deferred()
        self._calls.append((address, request, later))
        return later

    def _pass_on(self) -> None:
        """Deliver earlier responses, and pass new requests to the other brokers."""
        responses, self._answers = self._answers, []
        for response in responses:
            response()
        calls, self._calls = self._calls, []
        for address, request, later in calls:
            other = self._group.reached(self._broker, address)
            parts = other.carried if other is not None else None
            if other is None or parts is None:
                self._answers.append(partial(later.resolve, "timeout"))
                continue
            other.run(parts.ask, request, partial(self._answered, later))
            other.look()

    def _answered(self, later: Deferred[Command | str], response: Command) -> None:
        self._answers.append(partial(later.resolve, response))

    # Its own

    def tick(self) -> None:
        """Run the periodic work as broker/lifecycle/periodic.py and replication_setup.py do."""
        broker, context = self._broker, self.context
        wall_ms, now_ms = broker.wall_ms, self._group.now_ms
        self._pass_on()
        self._follow(broker.service)
        self.metadata.tick(wall_ms, now_ms)
        end = self.context.store.max_log_offset
        self._write(partial(context.timers.step, wall_ms, now_ms))
        self._write(partial(context.delay.step, wall_ms))
        stop = self.context.store.max_log_offset
        self._group.carried.due.check(broker.name, broker.log, end, stop, wall_ms)
        self._write(partial(context.transaction_checks.step, wall_ms))
        context.waiting.step(now_ms)
        delay = context.delay
        delay.begin_save()
        self._parts.save_table(DELAY_FILE, delay.take_unsaved_content, delay.save_failed)

    def close(self) -> None:
        """Save progress after the store was closed."""
        self.context.delay.save()
        self.context.timers.close()

    def ask(self, request: Command, on_response: Callable[[Command], None]) -> None:
        """A request of a client, or of another broker."""
        producers = self.context.producers
        producers.register(self.peer, str(self.peer), PAYERS, self._group.now_ms)
        self.context.store.pending.steady_ms = self._group.now_ms
        self._write(partial(self._dispatch, request, on_response))

    def _dispatch(self, request: Command, on_response: Callable[[Command], None]) -> None:
        response = self._parts.dispatch(request, self.peer)
        if isinstance(response, Deferred):
            response.then(lambda one: on_response(one) if one is not None else None)
        elif response is not None:
            on_response(response)

    def _write(self, work: Callable[[], object]) -> None:
        """Run work that may append, and note when the new messages are due."""
        broker, store = self._broker, self.context.store
        end = store.max_log_offset
        work()
        if store.max_log_offset > end:
            broker.wrote()
            stop = store.max_log_offset
            self._group.carried.due.note(broker.log, end, stop, broker.wall_ms)


class Carried:
    """Sender and checker of a seed's carried messages (see the module); also the connection on
    which brokers check transactions.
    """

    def __init__(self, group: "Run") -> None:
        self.due = DueTimes(TOPIC)
        self._group = group
        self._safe: list[bytes] = []
        """Bodies of acknowledged messages, which have to be delivered."""
        self._payments: list[Payment] = []
        self._asked: list[tuple[Broker, Payment, tuple[int, int]]] = []
        self._count = 0

    @property
    def _keeps(self) -> bool:
        """Whether acknowledged messages must never be lost."""
        group = self._group
        never_lost = not group.settings.ha.may_lose and not group.history.anew_in_epoch
        return group.settings.safe and never_lost

    # Sending

    def act(self) -> None:
        """Something is asked of a master."""
        self.answer()
        rng = self._group.rng
        masters = [one for one in self._group.brokers if one.is_master and not one.paused]
        if not masters:
            return
        broker = masters[int(rng.random() * len(masters))]
        draw = rng.random()
        payment = self._payments[int(draw * len(self._payments))] if self._payments else None
        if payment is not None and payment.places and rng.random() < 0.4:
            self._end(broker, payment, payment.places[0])
        elif self._count < AT_MOST:
            self._count += 1
            if rng.random() < 0.65:
                self._remind(broker)
            else:
                self._pay(broker)

    def jump(self) -> None:
        """A wall clock is set."""
        rng = self._group.rng
        broker = self._group.brokers[int(rng.random() * len(self._group.brokers))]
        broker.ahead_ms += JUMPS_MS[int(rng.random() * len(JUMPS_MS))]

    def _remind(self, broker: "Broker") -> None:
        rng = self._group.rng
        delay_ms = DELAYS_MS[int(rng.random() * len(DELAYS_MS))]
        kinds = (
            {"TIMER_DELIVER_MS": str(broker.wall_ms + delay_ms)},
            {"TIMER_DELAY_MS": str(delay_ms)},
            {"DELAY": str(1 + int(rng.random() * LEVELS))},
        )
        body = self._body()

        def on_response(response: Command) -> None:
            if self._is_safe(broker, response):
                self._safe.append(body)

        self._send(broker, body, kinds[int(rng.random() * len(kinds))], 0, on_response)

    def _pay(self, broker: "Broker") -> None:
        payment = Payment(len(self._payments), self._body(), self._group.rng.random() < 0.6)
        self._payments.append(payment)
        properties = {"TRAN_MSG": "true", "PGROUP": PAYERS, "UNIQ_KEY": f"ID{payment.number}"}

        def on_response(response: Command) -> None:
            if response.code == ResponseCode.SUCCESS:
                half = read_header(SendMessageResponse, response.fields)
                payment.places.append((half.queue_offset, decode_message_id(half.msg_id)[1]))
                payment.is_safe |= self._is_safe(broker, response)

        self._send(broker, payment.body, properties, PREPARED, on_response)

    def _body(self) -> bytes:
        self._group.number += 1
        return b"%08d carried" % self._group.number

    def _send(
        self,
        broker: "Broker",
        body: bytes,
        properties: dict[str, str],
        flag: int,
        on_response: Callable[[Command], None],
    ) -> None:
        text = encode_properties(properties).decode()
        born_ms = broker.wall_ms
        header = SendMessageRequestV2(
            PAYERS, TOPIC, "TBW102", 4, 0, flag, born_ms, 0, properties=text
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, body, fields=write_send(code, header))
        self._ask(broker, request, on_response)

    def _end(
        self, broker: "Broker", payment: Payment, place: tuple[int, int], checked: bool = False
    ) -> None:
        what = COMMIT if payment.commits else ROLL_BACK
        header = EndTransactionRequest(PAYERS, *place, what, f"ID{payment.number}", checked)
        self._ask(broker, new_request(RequestCode.END_TRANSACTION, header), lambda response: None)

    def _ask(
        self, broker: "Broker", request: Command, on_response: Callable[[Command], None]
    ) -> None:
        if broker.up and broker.carried is not None:
            broker.run(broker.carried.ask, request, on_response)
            broker.look()

    def _is_safe(self, broker: "Broker", response: Command) -> bool:
        if response.code != ResponseCode.SUCCESS:
            return False
        self._group.played.acked += 1
        return broker.tells_of_now

    # Requests of brokers

    def asked(self, broker: "Broker", command: Command) -> None:
        """Note the check of a transaction by a broker (CHECK_TRANSACTION_STATE), to be answered
        later.
        """
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE, f"it asks {command.code}"
        header = read_header(CheckTransactionStateRequest, command.fields)
        payment = self._payments[int((header.msg_id or "")[2:])]
        place = (header.tran_state_table_offset, header.commit_log_offset)
        payment.places.append(place)
        self._asked.append((broker, payment, place))

    def answer(self) -> None:
        """Checks are answered, most of them, to whichever process is there by then."""
        asked, self._asked = self._asked, []
        for broker, payment, place in asked:
            if self._group.rng.random() < 0.8:
                self._end(broker, payment, place, checked=True)

    # Checks

    def all_is_due(self) -> None:
        """Advance the clocks of all brokers until every message is due."""
        brokers = self._group.brokers
        last_ms = max([one.wall_ms for one in brokers] + list(self.due.due_ms.values()))
        for broker in brokers:
            broker.ahead_ms += last_ms - broker.wall_ms

    def is_over(self) -> bool:
        """Whether no message is pending and all that have to be delivered are there."""
        masters = [one for one in self._group.brokers if one.is_master]
        if len(masters) != 1 or masters[0].carried is None:
            return False
        context = masters[0].carried.context
        if not context.transactions.is_ready or context.transactions.open_count:
            return False
        status = context.timers.status(masters[0].wall_ms)
        if status.offset_behind or status.next_due_ms is not None:
            return False
        if not self._keeps or self._group.retention:
            return True
        shown = set(bodies(context.store, TOPIC))
        return all(body in shown for body in self._safe)

    def check(self, store: Store) -> None:
        """Check the delivered transactions of the whole run."""
        shown, given_up = bodies(store, TOPIC), bodies(store, GIVEN_UP_TOPIC)
        for payment in self._payments:
            count = shown.count(payment.body)
            assert count <= 1 or not self._keeps, f"committed {count} times: {payment}"
            assert not count or payment.commits, f"shown, but rolled back: {payment}"
            if payment.is_safe and payment.commits and self._keeps and not self._group.retention:
                assert count or payment.body in given_up, f"lost: {payment}"


class _Link:
    """The connection of the sender to one life of a broker."""

    def __init__(self, broker: "Broker", carried: Carried) -> None:
        self._broker = broker
        self._carried = carried

    def send(self, command: Command) -> None:
        self._carried.asked(self._broker, command)

    def close(self) -> None:
        """No-op: this connection stays open."""


def _config(broker: "Broker") -> BrokerConfig:
    """The broker's configuration, as its file would give it."""
    options = broker.options
    is_slave = options.broker_role is BrokerRole.SLAVE
    return BrokerConfig(
        broker_name="broker",
        broker_id=broker.number if is_slave else 0,
        store=broker.settings.store,
        transaction_time_out_ms=1_500,
        transaction_check_interval_ms=1_000,
        replication=ReplicationConfig(
            enable_controller_mode=options.has_elections,
            broker_role=options.broker_role,
            in_sync_replicas=options.in_sync_replicas,
        ),
    )

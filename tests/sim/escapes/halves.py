"""A seed of the suite of transactions that escape (RIP-32, enableRemoteEscape): the machines of
the suite `escapes`, and a payer whose half messages a master had stored when it died.

A half message that was stored safely is committed at least once, at any master, if its payer
commits it, and never if it rolls back (I15); in the end no master has an open one. The payer ends
its transactions at its group's master, or at the replica that acts, and answers checks of masters;
not for transactions whose end was confirmed, so that such a response has to hold. Duplicates are no
fault: a replica may die whose half messages moved before its master learned of that.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.acting.machines import CALL_TIMEOUT_MS, GROUP
from tests.sim.acting.model import Model
from tests.sim.acting.routing import address_of, route_request
from tests.sim.escapes import suite as escapes
from tests.sim.escapes.machines import EscapingMember, OtherMaster
from tests.sim.group.machines import Process
from tests.sim.payments.suite import PayerEndpoint
from tests.sim.transactions.payment import Payment
from turbopump.engine.types import QueueOffset
from turbopump.net.transport.dispatcher import Response
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
from turbopump.net.wire.topics import TopicConfig

if TYPE_CHECKING:
    from tests.sim.escapes.halves import Run

TOPIC, PAYERS = "H", "payers"
COMMIT, ROLL_BACK = 8, 12
CHECKS = "transactionTimeOut=1500\ntransactionCheckInterval=1000\n"
ENDS_MS = 120_000


class Pays:
    """A broker that the payer knows, and that asks it."""

    def __init__(self, group: "Run", which: Any) -> None:
        super().__init__(group, which)  # type: ignore[call-arg]
        self.text += CHECKS

    def begin(self) -> None:
        super().begin()
        _knows(self)

    def on_tick(self, now_ms: int) -> None:
        assert self.context is not None, "it is up"
        self.context.transaction_checks.step(self.clock.wall_ms)
        super().on_tick(now_ms)

    def answer(self, request: Command, peer: Peer) -> Response:
        _hears(self, peer)
        return super().answer(request, peer)


class PaidMember(Pays, EscapingMember):
    """A broker of the group."""


class PaidOther(Pays, OtherMaster):
    """The master of another group, which checks half messages that moved to it with the payer."""


def _knows(broker: Any) -> None:
    assert broker.context is not None, "it has begun"
    broker.context.topics.put(TopicConfig(TOPIC, 1, 1), 1)


def _hears(broker: Any, peer: Peer) -> None:
    """Whatever asks it may be asked about transactions; only the payer has any."""
    if broker.context is not None and str(peer.address).startswith("payer"):
        broker.context.producers.register(peer, peer.address, PAYERS, broker.clock.now_ms)


class EscapedPayer(Process):
    """Begins transactions at the group's master, and ends them; one thing at a time."""

    def __init__(self, group: "Run", name: str) -> None:
        super().__init__(group, name)
        self.endpoint = PayerEndpoint(group.net, self, self.port, group.trouble)
        self.payments: list[Payment] = []
        self.rests = False
        """Whether it only answers checks and has stopped sending."""

    def begin(self) -> None:
        self._busy, self._next_ms = False, 0

    def on_tick(self, now_ms: int) -> None:
        if self._busy or now_ms < self._next_ms:
            return
        self._busy, rng = True, self.group.rng
        draw = rng.random()
        open_ones = [one for one in self.payments if one.places and not one.is_told]
        if self.rests or draw < 0.4:
            names = [GROUP, *(one.name for one in self.group.others)]
            self._at(names[int(rng.random() * len(names))], self._look)
        elif open_ones and draw < 0.6:
            self._at(GROUP, partial(self._end, open_ones[int(rng.random() * len(open_ones))]))
        else:
            self._at(GROUP, self._begin)

    def _at(self, name: str, then: Any) -> None:
        names = self.group.names[int(self.group.rng.random() * len(self.group.names))]

        def routed(response: Command | str) -> None:
            address = address_of(response, name)
            if address:
                then(address)
            else:
                self._done(None)

        self._ask(names.endpoint.address, route_request(TOPIC), routed)

    def _ask(self, address: str, request: Command, then: Any) -> None:
        self.endpoint.call(address, request, CALL_TIMEOUT_MS).then(then)

    def _look(self, address: str) -> None:
        """Connect to a broker, so that it can check transactions."""
        self._ask(address, new_request(RequestCode.GET_BROKER_RUNTIME_INFO), self._done)

    def _begin(self, address: str) -> None:
        number, rng = len(self.payments), self.group.rng
        payment = Payment(number, b"payment-%d" % number, rng.random() < 0.6)
        self.payments.append(payment)
        properties = {"TRAN_MSG": "true", "PGROUP": PAYERS, "UNIQ_KEY": f"ID{number}"}
        text = encode_properties(properties).decode()
        born_ms = self.clock.wall_ms
        header = SendMessageRequestV2(PAYERS, TOPIC, "TBW102", 1, 0, 4, born_ms, 0, properties=text)
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, payment.body, fields=write_send(code, header))

        def prepared(response: Command | str) -> None:
            if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
                half = read_header(SendMessageResponse, response.fields)
                payment.places.append((half.queue_offset, decode_message_id(half.msg_id)[1]))
                payment.is_safe = True
            self._done(response)

        self._ask(address, request, prepared)

    def _end(self, payment: Payment, address: str) -> None:
        def on_response(response: Command | str) -> None:
            payment.is_told |= (
                isinstance(response, Command) and response.code == ResponseCode.SUCCESS
            )
            self._done(response)

        self._ask(address, _end_of(payment, payment.places[0], checked=False), on_response)

    def asked(self, address: str, command: Command) -> None:
        """A broker asks: mostly it is answered."""
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        header = read_header(CheckTransactionStateRequest, command.fields)
        payment = self.payments[int((header.msg_id or "")[2:])]
        place = header.tran_state_table_offset, header.commit_log_offset
        if address and not payment.is_told and (self.rests or self.group.rng.random() < 0.6):
            self.endpoint.notify(address, _end_of(payment, place, checked=True))

    def _done(self, _answer: Command | str | None) -> None:
        self._busy = False
        self._next_ms = self.clock.now_ms + int(self.group.rng.random() * 300)


def _end_of(payment: Payment, place: tuple[int, int], *, checked: bool) -> Command:
    what = COMMIT if payment.commits else ROLL_BACK
    key = f"ID{payment.number}"
    header = EndTransactionRequest(PAYERS, *place, what, key, checked, transaction_id=key)
    return new_request(RequestCode.END_TRANSACTION, header)


class Run(escapes.Run):
    """Run of a seed."""

    member_class, other_class = PaidMember, PaidOther
    remade = None

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.payer = EscapedPayer(self, "payer")
        self.again = self.moved = 0
        """Commits beyond the first one of each, and those at other masters."""

    @property
    def machines(self) -> list:
        """All machines, with the payer."""
        return [*super().machines, self.payer]

    def play(self) -> Model:
        """Play the whole seed; AssertionError is a finding."""
        model = super().play()
        model.acked += sum(one.is_safe for one in self.payer.payments)
        return model

    def _heal(self) -> None:
        super()._heal()
        self.payer.rests = True

    def _check(self) -> None:
        super()._check()
        end_ms = self.now_ms + ENDS_MS
        while open_ones := self._open():
            assert self.now_ms < end_ms, f"open for ever at {open_ones} (I15)"
            self._pass(500)
        self._pass(2_000)
        for payment in self.payer.payments:
            self._check_one(payment)

    def _open(self) -> list[str]:
        masters = [self.brokers[0], *self.others]
        found = [(one.name, one.context.transactions) for one in masters]
        return [name for name, group in found if not group.is_ready or group.open_count]

    def _check_one(self, payment: Payment) -> None:
        masters = [self.brokers[0].context, *(one.context for one in self.others)]
        shown = [_bodies(one, TOPIC).count(payment.body) for one in masters]
        given_up = any(payment.body in _bodies(one, GIVEN_UP_TOPIC) for one in masters)
        assert payment.commits or not sum(shown), f"shown, but rolled back: {payment} (I15)"
        if payment.commits and payment.is_safe:
            may_be_given_up = given_up and not payment.is_told
            assert sum(shown) or may_be_given_up, f"lost: {payment} (I15)"
        self.moved += sum(shown[1:])
        self.again += max(0, sum(shown) - 1)


def _bodies(context: Any, topic: str) -> list[bytes]:
    store = context.store
    return [
        bytes(store.record(unit.log_offset).body)
        for queue_id in store.queue_ids(topic)
        for unit in store.units(topic, queue_id, QueueOffset(0), 100_000)
    ]


def run_seed(seed: int) -> Run:
    """Play one seed of this suite."""
    run = Run(seed)
    run.play()
    return run

"""Transactions in a simulated group: a payer sends half messages, decisions and answers to the
master that the name server knows, through elections, power cuts and lost messages (I15, F31).

A run of its own (`make sim SUITE=payments`), because a payer's requests would change the stories of
the seeds of `group`. Acknowledgements hold where no loss is allowed: a transaction is committed at
most once, only as its payer decides, and none is open in the end.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.group.calls import Endpoint
from tests.sim.group.machines import Client
from tests.sim.group.suite import Run
from tests.sim.transactions.payment import Payment
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import RESPONSE_FLAG, Command, new_request
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
    from tests.sim.group.broker import GroupBroker

TOPIC, GROUP = "A", "payers"
COMMIT, ROLL_BACK = 8, 12
TIME_OUT_MS, CHECK_MS = 1_500, 1_000
ENDS_MS = 60_000


class PayerEndpoint(Endpoint):
    """Brokers ask on the connection on which they were asked."""

    def _on_frame(self, number: int, command: Command) -> None:
        if command.flag & RESPONSE_FLAG:
            super()._on_frame(number, command)
        else:
            self.machine.asked(self._addresses.get(number, ""), command)


class Payer(Client):
    """Sends half messages and ends them, one thing at a time."""

    def __init__(self, group: "Payments", name: str) -> None:
        super().__init__(group, name, TOPIC, 2)
        self.endpoint = PayerEndpoint(group.net, self, self.port, group.trouble)
        self.payments: list[Payment] = []

    def _send(self) -> None:
        rng = self._rng
        open_ones = [one for one in self.payments if one.places and not one.is_told]
        if open_ones and rng.random() < 0.6:
            payment = open_ones[int(rng.random() * len(open_ones))]
            place = payment.places[int(rng.random() * len(payment.places))]
            self._end(self._address, payment, place)
            return
        payment = Payment(len(self.payments), self.group.new_body(), rng.random() < 0.6)
        self.payments.append(payment)
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"ID{payment.number}"}
        text = encode_properties(properties).decode()
        born_ms = self.clock.wall_ms
        header = SendMessageRequestV2(GROUP, TOPIC, "TBW102", 4, 0, 4, born_ms, 0, properties=text)
        code = RequestCode.SEND_MESSAGE_V2
        request = new_request(code, None, payment.body, fields=write_send(code, header))
        self._ask(self._address, request, partial(self._prepared, payment))

    def _prepared(self, payment: Payment, response: Command | str) -> None:
        if not isinstance(response, str) and response.code == ResponseCode.SUCCESS:
            half = read_header(SendMessageResponse, response.fields)
            payment.places.append((half.queue_offset, decode_message_id(half.msg_id)[1]))
            payment.is_safe = True
        self._sent(payment.body, response)

    def _end(self, address: str, payment: Payment, place: tuple[int, int]) -> None:
        request = self._request(payment, place)

        def on_response(response: Command | str) -> None:
            if not isinstance(response, str):
                payment.is_told |= response.code == ResponseCode.SUCCESS
            self._busy = False
            if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
                self._address = ""
            self._next_ms = self.clock.now_ms + self.group.think_ms()

        self._ask(address, request, on_response)

    def _request(self, payment: Payment, place: tuple[int, int], checked: bool = False) -> Command:
        what = COMMIT if payment.commits else ROLL_BACK
        header = EndTransactionRequest(GROUP, *place, what, f"ID{payment.number}", checked)
        return new_request(RequestCode.END_TRANSACTION, header)

    def asked(self, address: str, command: Command) -> None:
        """Answer most checks of a broker, without a wait for the response."""
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        header = read_header(CheckTransactionStateRequest, command.fields)
        payment = self.payments[int((header.msg_id or "")[2:])]
        place = header.tran_state_table_offset, header.commit_log_offset
        payment.places.append(place)
        if self._rng.random() < 0.8 and address:
            self.endpoint.notify(address, self._request(payment, place, checked=True))


class Payments(Run):
    """Run of a seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(seed, about, **more)
        # Without an index a broker cannot find transactions whose op message a crash lost.
        store = replace(self.settings.store, message_index_enable=True)
        self.settings = replace(self.settings, store=store)
        for broker in self.brokers:
            broker.settings = self.settings
        self.payer = Payer(self, "payer")
        self.machines.append(self.payer)
        self.clients.append(self.payer)

    def broker_ticks(self, broker: "GroupBroker") -> None:
        """Check half messages."""
        broker.write(partial(broker.context.transaction_checks.step, broker.clock.wall_ms))

    def settle(self) -> None:
        """Let payers answer checks until no transaction is open."""
        super().settle()
        (master,) = self.masters()
        self.until(lambda: self._is_over(master), ENDS_MS, "a transaction is open")
        self.until(self.is_one, ENDS_MS, "not one")

    def check(self) -> None:
        """Check the transactions that consumers read."""
        super().check()
        (master,) = self.masters()
        shown, given_up = (_bodies(master, topic) for topic in (TOPIC, GIVEN_UP_TOPIC))
        for payment in self.payer.payments:
            count = shown.count(payment.body)
            assert count <= 1 or self.may_lose, f"committed {count} times: {payment}"
            assert not count or payment.commits, f"shown, but rolled back: {payment}"
            if self.retention or not payment.is_safe:
                continue  # its messages may have expired
            if payment.commits and not self.may_lose:
                assert count or payment.body in given_up, f"lost: {payment}"

    def _is_over(self, master: "GroupBroker") -> bool:
        transactions = master.tables.context.transactions
        return transactions.is_ready and not transactions.open_count


def _bodies(broker: "GroupBroker", topic: str) -> list[bytes]:
    store = broker.store
    return [
        store.record(unit.log_offset).body
        for queue_id in store.queue_ids(topic)
        for unit in store.units(topic, queue_id, QueueOffset(0), 100_000)
    ]


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Any:
    """Play one seed of this suite."""
    return Payments(seed, about).play()

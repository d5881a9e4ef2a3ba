"""A seed of the suite of transactions (I15, F31): producers, a broker, and power cuts.

The real parts of a broker over the simulated disk, on virtual time. Each producer has its decision
from the start, but may send it late, twice, with the ids from before a check, or only when it is
checked; others send the opposite, or name other records. The broker ends by power cuts and kills,
anywhere. In some seeds configuration and queue count of the topic change between two lives, and
half messages come in bursts. `model.py` has the invariants.
"""

import random

from tests.sim.broker.lives import TICK_MS, BrokerLives, SilentLink
from tests.sim.transactions.model import Model, Transaction
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.topics import TopicConfig

SETTLE_MS = 40_000
ANY_QUEUE = 1 << 30
COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0
_GROUP = "PG"


class Producer(SilentLink):
    """The producers' connection, which collects the broker's checks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.asked: list[CheckTransactionStateRequest] = []

    def send(self, command: Command) -> None:
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        asked = read_header(CheckTransactionStateRequest, command.fields)
        place = asked.tran_state_table_offset, asked.commit_log_offset
        self._model.asked(self._model.transactions[int((asked.msg_id or "")[2:]) - 1], place)
        self.asked.append(asked)


class Run(BrokerLives):
    """Run of a seed."""

    link: Producer

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.changes = random.Random(f"{seed} changes")
        """Random generator for changes between lives, apart from all other draws."""
        self.varies = self.changes.random() < 0.25
        self.clock_jumps = rng.random() < 0.2
        is_sync = rng.random() < 0.6
        self._of_all_lives: dict[str, int] = {
            "mappedFileSizeCommitLog": 8_192,
            "transactionOpMsgMaxSize": rng.choice((20, 4096)),
        }
        self.configure(
            is_sync=is_sync,
            **self._of_all_lives,
            transactionTimeOut=2_000,
            transactionCheckInterval=rng.choice((500, 2000)),
            transactionCheckMax=rng.choice((2, 15)),
        )
        self.model = Model(is_sync)
        self.number = 0

    @property
    def acked(self) -> int:
        return self.model.acked

    def _new_link(self) -> Producer:
        self.link = Producer(self.model)
        return self.link

    def _opened(self) -> None:
        self.broker.producers.register(self.peer, "client", _GROUP, self.now_ms)
        self.model.look(self.broker.store, ANY_QUEUE)  # the table may be one of before
        if self.varies:
            queues = self.changes.choice((1, 2, 8))
            self.broker.topics.put(TopicConfig("T", queues, queues), self.now_ms)

    def _ended(self, *, power: bool) -> None:
        self.model.ended(power=power)
        if self.varies:
            draw = self.changes
            self.configure(
                is_sync=self.model.is_sync,
                **self._of_all_lives,
                transactionTimeOut=draw.choice((500, 2_000, 8_000)),
                transactionCheckInterval=draw.choice((100, 500, 2_000)),
                transactionCheckMax=draw.choice((2, 15)),
            )

    @property
    def _queues(self) -> int:
        """Number of the topic's read queues at the broker."""
        topic = self.broker.topics.peek_topic("T")
        return 4 if topic is None else topic.read_queue_nums

    def _look(self) -> None:
        self.model.look(self.broker.store, self._queues)

    def _settle(self) -> None:
        """Let producers answer without trouble until each transaction has its proper end.

        The disk works between two responses: a burst of them needs several of the small log files.
        """
        self._open()
        for _ in range(SETTLE_MS // TICK_MS):
            self._tick()
            for asked in self.link.asked:
                self._answer(asked, sure=True)
                self.work.close()
                self._turn()
            self.link.asked.clear()
            self.work.close()
            self._turn()
        self._look()
        self.model.settled(self.broker)

    # Steps

    def _act(self) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.3:
            self._prepare()
            for _ in range(self.changes.choice((0, 0, 0, 40)) if self.varies else 0):
                self._prepare()
        elif draw < 0.65:
            self._end_one()
        elif draw < 0.8 and self.link.asked:
            asked = self.link.asked.pop(rng.randrange(len(self.link.asked)))
            self._answer(asked, sure=rng.random() < 0.6)
        elif draw < 0.83:
            self.disk.writeback()
        elif draw < 0.85 and self.clock_jumps:
            self.skew_ms += rng.choice((-3_600_000, -2_000, 2_000, 3_600_000))
        else:
            self._work_some()
        if rng.random() < 0.7:
            self._turn()
        self._look()

    def _serve(self) -> None:
        self.broker.transaction_checks.step(self.now_ms)

    def _prepare(self) -> None:
        self.number += 1
        commits = self.rng.random() < 0.6
        transaction = Transaction(self.number, b"%d %s" % (self.number, b"x" * 40), commits)
        transaction.is_fickle = self.rng.random() < 0.2
        properties = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": f"ID{self.number}"}
        if self.rng.random() < 0.1:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(self.rng.randrange(5))
        text = encode_properties(properties).decode()
        queue_id = self.changes.randrange(self._queues) if self.varies else 0
        header = SendMessageRequestV2(
            "PG", "T", "TBW102", 4, queue_id, 4, self.now_ms, 0, properties=text
        )
        self.model.tried(transaction)

        def on_response(response: Command | None) -> None:
            if response is not None and response.code == 0:
                half = read_header(SendMessageResponse, response.fields)
                at = decode_message_id(half.msg_id)[1]
                transaction.places.append((half.queue_offset, at))
                self.model.prepared(transaction)

        self._ask(RequestCode.SEND_MESSAGE_V2, header, transaction.body).then(on_response)

    def _end_one(self) -> None:
        known = [each for each in self.model.transactions if each.places]
        if not known:
            return
        transaction = known[-1 - min(int(self.rng.expovariate(0.4)), len(known) - 1)]
        opposite = transaction.is_fickle and self.rng.random() < 0.3
        self._end(transaction, self.rng.choice(transaction.places), opposite=opposite)

    def _answer(self, asked: CheckTransactionStateRequest, *, sure: bool) -> None:
        """A producer is asked; it may not know yet."""
        if sure:
            transaction = self.model.transactions[int((asked.msg_id or "")[2:]) - 1]
            place = asked.tran_state_table_offset, asked.commit_log_offset
            self._end(transaction, place, from_check=True)

    def _end(
        self,
        transaction: Transaction,
        place: tuple[int, int],
        *,
        opposite: bool = False,
        from_check: bool = False,
    ) -> None:
        commits = transaction.commits != opposite
        header = EndTransactionRequest(
            _GROUP, *place, COMMIT if commits else ROLL_BACK, f"ID{transaction.number}", from_check
        )
        decision = self.model.decides(transaction, commits)

        def ended_by(response: Command | None) -> None:
            if response is not None and response.code == 0:
                self.model.ended_by(transaction, decision)

        self._ask(RequestCode.END_TRANSACTION, header).then(ended_by)


def run_seed(seed: int) -> Run:
    """Play one seed of this suite."""
    return Run(seed).play()

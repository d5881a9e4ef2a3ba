"""One seed of the suite of transactions (I15, F31): producers, a broker, and the power.

The real parts of a broker over the simulated disk, on virtual time. Each producer knows from the
start how its transaction ends, but may say so late, twice, by the ids of before a check, or not
until it is asked; others say the opposite, or speak of other records. The broker ends by power cuts
and kills, anywhere. What must hold is in `model.py`.
"""

import random
from functools import partial

from tests.sim.disk import PowerCut, SimDisk
from tests.sim.transactions.model import Model, Transaction
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import load_config
from turbopump.broker.context import BrokerContext
from turbopump.broker.parts import Surroundings, make_broker, request_table
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.broker.tables.saving import Saver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from turbopump.net.wire.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from turbopump.net.wire.hosts import pack
from turbopump.net.wire.message_id import UniqueIds, decode_message_id
from turbopump.net.wire.properties import encode_properties

ROOT = "/store"
START_MS = 1_800_000_000_000
TICK_MS = 100
LIVES = 4
STEPS_MAX = 60
SAVE_MS = 1_500
SETTLE_MS = 40_000
PAUSES_MS = (0, 0, 5, 100, 100, 400, 1_000, 3_000)
COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0
_GROUP = "PG"


class Producer:
    """The link of the producers' connection: what the broker asks them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.asked: list[CheckTransactionStateRequest] = []

    def send(self, command: Command) -> None:
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        asked = read_header(CheckTransactionStateRequest, command.fields)
        place = asked.tran_state_table_offset, asked.commit_log_offset
        self._model.asked(self._model.transactions[int((asked.msg_id or "")[2:]) - 1], place)
        self.asked.append(asked)

    def close(self) -> None:
        pass


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.steady_ms, self.skew_ms = 0, START_MS
        self.disk = SimDisk(rng, lambda: self.now_ms)
        self.disk.torn_pages = rng.random() < 0.3
        self.work = QueuedDisk(rng)
        self.clock_jumps = rng.random() < 0.2
        self.is_sync = rng.random() < 0.6
        self.text = (
            f"storePathRootDir={ROOT}\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=8192\n"
            "mappedFileSizeConsumeQueue=400\nmaxHashSlotNum=16\nmaxIndexNum=40\n"
            f"flushDiskType={'SYNC' if self.is_sync else 'ASYNC'}_FLUSH\n"
            f"transactionOpMsgMaxSize={rng.choice((20, 4096))}\ntransactionTimeOut=2000\n"
            f"transactionCheckInterval={rng.choice((500, 2000))}\n"
            f"transactionCheckMax={rng.choice((2, 15))}\n"
        )
        self.model = Model(self.is_sync)
        self.context: BrokerContext | None = None
        self.number = self._saved_ms = 0
        self._soon: list = []

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.steady_ms + self.skew_ms

    def play(self) -> Model:
        """All lives; AssertionError is a finding."""
        for _ in range(self.rng.randrange(1, LIVES + 1)):
            self.disk.kill = self.rng.random() < 0.5
            try:
                self._life()
            except PowerCut:
                self.model.ends += 1
            self.model.ended(power=not self.disk.kill)
            self.disk.restart()
            self.context, self.work = None, QueuedDisk(self.rng)
            self.steady_ms += 1_000
        self._settle()
        return self.model

    # Lives

    def _life(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.disk.cut_after = rng.randrange(60)
        self._open()
        self.disk.cut_after = rng.randrange(300) if rng.random() < 0.5 else None
        for _ in range(rng.randrange(STEPS_MAX)):
            self._step()
        self.disk.end()

    def _open(self) -> None:
        config, _ = load_config(self.text)
        files = ConfigFiles(self.disk, f"{ROOT}/config")
        saver = Saver(files, self.work)
        topics = TopicTable(config, saver)
        topics.load()
        store = Store.open(
            self.disk,
            config.store,
            self.work,
            self.now_ms,
            steady_ms=self.steady_ms,
            delay_levels_ms=config.delay_levels_ms,
        )
        self._soon = []
        self.context = make_broker(config, store, topics, self._around(files, saver))
        self.context.address = "127.0.0.1:10911"
        self.context.store_host = pack(self.context.address)
        self.files, self.config = files, config
        self.table: Dispatcher = request_table(self.context)
        self.link = Producer(self.model)
        self.peer = Peer("127.0.0.1:4711", pack("127.0.0.1:4711"), self.link)
        self.context.producers.register(self.peer, "client", _GROUP, self.now_ms)
        self._saving = False
        self.model.look(store)

    def _around(self, files: ConfigFiles, saver: Saver) -> Surroundings:
        return Surroundings(
            files=files,
            store_files=self.disk,
            disk=self.work,
            timer_slots=8_000,
            saver=saver,
            random=self.rng,
            unique_ids=UniqueIds(b"\x7f\0\0\1", 1, 2, lambda: self.now_ms),
            wall_ms=lambda: self.now_ms,
            steady_ms=lambda: self.steady_ms,
            native_clock=lambda: self.now_ms,
            soon=self._soon.append,
            register_topics=lambda names: Later(),
            save_config=lambda changed: Later(),
            call=lambda address, request, timeout_ms: Later(),
        )

    def _settle(self) -> None:
        """No trouble any more, and producers that answer: each transaction ends as it is to."""
        self._open()
        for _ in range(SETTLE_MS // TICK_MS):
            self._tick()
            for asked in self.link.asked:
                self._answer(asked, sure=True)
            self.link.asked.clear()
            self.work.close()
            self._turn()
        self.model.look(self._broker.store)
        self.model.settled(self._broker)

    # Steps

    @property
    def _broker(self) -> BrokerContext:
        assert self.context is not None, "it is up"
        return self.context

    def _step(self) -> None:
        rng = self.rng
        pause_ms = PAUSES_MS[rng.randrange(len(PAUSES_MS))]
        for _ in range(pause_ms // TICK_MS):
            self._tick()
        if pause_ms < TICK_MS:
            self.steady_ms += pause_ms
        draw = rng.random()
        if draw < 0.3:
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
            for _ in range(rng.randrange(6)):
                self.work.step()
        if rng.random() < 0.7:
            self._turn()
        self.model.look(self._broker.store)

    def _turn(self) -> None:
        """The loop's turn ends."""
        due, self._soon[:] = list(self._soon), []
        for work in due:
            work()

    def _tick(self) -> None:
        self.steady_ms += TICK_MS
        broker = self._broker
        broker.store.tick(self.now_ms, self.steady_ms)
        for _ in range(3):
            self.work.step()
        broker.half_checks.step(self.now_ms)
        self._turn()
        if self.steady_ms - self._saved_ms >= SAVE_MS and not self._saving:
            self._saved_ms = self.steady_ms
            self._save()

    def _save(self) -> None:
        steps = self._broker.offsets.take_changes()
        if steps is None:
            return
        *_, content = steps
        self._saving = True

        def saved(_result: object) -> None:
            self._saving = False

        self.work.submit(partial(self.files.replace, OFFSETS_FILE, content), saved)

    def _ask(self, code: int, header: object, body: bytes = b"") -> Later[Command | None]:
        answer = self.table.dispatch(new_request(code, header, body), self.peer, self.now_ms)
        if isinstance(answer, Later):
            return answer
        later: Later[Command | None] = Later()
        later.resolve(answer)
        return later

    def _prepare(self) -> None:
        self.number += 1
        commits = self.rng.random() < 0.6
        transaction = Transaction(self.number, b"%d %s" % (self.number, b"x" * 40), commits)
        transaction.is_fickle = self.rng.random() < 0.2
        properties = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": f"ID{self.number}"}
        if self.rng.random() < 0.1:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(self.rng.randrange(5))
        text = encode_properties(properties).decode()
        header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 4, self.now_ms, 0, properties=text)
        self.model.tried(transaction)

        def told(answer: Command | None) -> None:
            if answer is not None and answer.code == 0:
                half = read_header(SendMessageResponse, answer.fields)
                at = decode_message_id(half.msg_id)[1]
                transaction.places.append((half.queue_offset, at))
                self.model.prepared(transaction)

        self._ask(RequestCode.SEND_MESSAGE_V2, header, transaction.body).then(told)

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
        said = self.model.says(transaction, commits)

        def told(answer: Command | None) -> None:
            if answer is not None and answer.code == 0:
                self.model.told(transaction, said)

        self._ask(RequestCode.END_TRANSACTION, header).then(told)


def run_seed(seed: int) -> Model:
    """Play one seed."""
    return Run(seed).play()

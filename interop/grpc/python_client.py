"""RocketMQ's Python client of gRPC, as published on PyPI, against a proxy or a broker.

A program of its own, run with the interpreter that has the client: ENDPOINTS SCENARIO...; topics
and groups have the names `python-SCENARIO` and must exist. Nothing of Turbopump is loaded.
"""

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reporting import Report, within  # type: ignore[import-not-found]
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

COUNT = 40
QUIET_S = 3.0
RUN_S = 120.0
INVISIBLE_S = 90
PROPERTY = "number"


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials(), request_timeout=10)


def message(topic: str, number: int, **more: Any) -> Any:
    """Make the message with this number, which determines its tag and key; `more` are attributes of
    the client's message."""
    made = Message()
    made.topic, made.body = topic, str(number).encode()
    made.tag = ("red", "green", "blue")[number % 3]
    made.keys = f"key-{number}"
    made.add_property(PROPERTY, str(number))
    for name, value in more.items():
        setattr(made, name, value)
    return made


def numbers(views: Sequence[Any]) -> list[int]:
    return [int(view.body) for view in views]


class Once:
    """Refuses one number at its first delivery: in a group in order the client tries again by
    itself, without counting."""

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def __call__(self, view: Any) -> bool:
        refused = int(view.body) == self._number
        if refused:
            self._number = None
        return refused


class Listener(MessageListener):  # type: ignore[misc]
    """Keeps the received messages; `refuses` returns whether the handling fails."""

    def __init__(self, refuses: Callable[[Any], bool] = lambda _view: False) -> None:
        self.came: list[Any] = []
        self.at: dict[int, float] = {}
        self._refuses = refuses

    def consume(self, view: Any) -> Any:
        self.at[int(view.body)] = time.time()
        if self._refuses(view):
            self.came.append(view)
            return ConsumeResult.FAILURE
        self.came.append(view)
        return ConsumeResult.SUCCESS


@contextmanager
def producing(topic: str, checker: Any = None) -> Iterator[Any]:
    one = Producer(configuration(), [topic], checker)
    one.startup()
    try:
        yield one
    finally:
        one.shutdown()


@contextmanager
def pushing(topic: str, listener: Listener, expression: Any = None) -> Iterator[None]:
    wanted = {topic: expression or FilterExpression()}
    one = PushConsumer(configuration(), topic, listener, wanted)
    one.startup()
    try:
        yield
    finally:
        one.shutdown()


def simple(report: Report, topic: str) -> None:
    """Acknowledged messages are not redelivered; the others are, after the changed time."""
    consumer = SimpleConsumer(configuration(), topic, {topic: FilterExpression()}, 3)
    with producing(topic) as producer:
        consumer.startup()
        try:
            ids = {producer.send(message(topic, number)).message_id for number in range(COUNT)}
            came: list[Any] = []
            left = None

            def receive() -> bool:
                nonlocal left
                for view in consumer.receive(16, INVISIBLE_S) or ():
                    came.append(view)
                    if int(view.body) == 5:
                        left = view
                    else:
                        consumer.ack(view)
                return len(came) >= COUNT

            report.check("all come", within(receive), len(came))
            report.equal("each once", list(range(COUNT)), sorted(numbers(came)))
            report.equal("by the ids that sends returned", ids, {one.message_id for one in came})
            changed = time.monotonic()
            consumer.change_invisible_duration(left, 10)
            again: list[Any] = []

            def receive_again() -> bool:
                again.extend(consumer.receive(16, INVISIBLE_S) or ())
                return bool(again)

            within(receive_again)
            waited = time.monotonic() - changed
            report.equal("the unacknowledged message is redelivered", [5], numbers(again))
            report.check("after the changed time", 9.5 <= waited < 45, waited)
            for view in again:
                consumer.ack(view)
        finally:
            consumer.shutdown()


def push(report: Report, topic: str) -> None:
    """All messages arrive, and a message that is refused once arrives again with its attributes."""
    listener = Listener(Once(7))
    with producing(topic) as producer, pushing(topic, listener):
        for number in range(COUNT):
            producer.send(message(topic, number))
        report.check(
            "all come, and the refused one again",
            within(lambda: len(listener.came) > COUNT),
            len(listener.came),
        )
        report.equal("each of them", list(range(COUNT)), sorted(set(numbers(listener.came))))
        tries = [view.delivery_attempt for view in listener.came if int(view.body) == 7]
        report.equal("attempts are counted", [1, 2], tries)
        one = next(view for view in listener.came if int(view.body) == 4)
        report.equal("with its tag", "green", one.tag)
        report.equal("with its property", "4", one.properties.get(PROPERTY))
        report.equal("with its key", ["key-4"], [*one.keys])
        report.equal("of its topic", topic, one.topic)


def filtered(expression: Any, wanted: Callable[[int], bool]) -> Callable[[Report, str], None]:
    def run(report: Report, topic: str) -> None:
        listener = Listener()
        with producing(topic) as producer, pushing(topic, listener, expression):
            for number in range(COUNT):
                producer.send(message(topic, number))
            passing = [number for number in range(COUNT) if wanted(number)]
            within(lambda: len(listener.came) >= len(passing))
            time.sleep(QUIET_S)
            report.equal("the messages that pass arrive", passing, sorted(numbers(listener.came)))

    return run


def fifo(report: Report, topic: str) -> None:
    """Each message group arrives in order, although one message is refused in between."""
    groups = 4
    listener = Listener(Once(9))
    with producing(topic) as producer, pushing(topic, listener):
        for number in range(COUNT):
            producer.send(message(topic, number, message_group=f"group-{number % groups}"))
        report.check("all come", within(lambda: len(listener.came) > COUNT), len(listener.came))
        for group in range(groups):
            found = [number for number in numbers(listener.came) if number % groups == group]
            wanted = list(range(group, COUNT, groups))
            if group == 9 % groups:
                wanted.insert(wanted.index(9), 9)
            report.equal(f"group {group} in its order", wanted, found)


def delay(report: Report, topic: str) -> None:
    """A message arrives at its delivery time, a recalled one never."""
    listener = Listener()
    with producing(topic) as producer, pushing(topic, listener):
        due = round(time.time()) + 6
        receipts = [
            producer.send(message(topic, number, delivery_timestamp=due + number % 3))
            for number in range(5)
        ]
        report.check("a handle to recall it", bool(receipts[4].recall_handle))
        producer.recall_message(topic, receipts[4].recall_handle)
        within(lambda: len(listener.came) >= 4)
        time.sleep(QUIET_S)
        report.equal("all come but the recalled one", [0, 1, 2, 3], sorted(numbers(listener.came)))
        late = {number: at - due - number % 3 for number, at in listener.at.items()}
        report.check("when they are due", all(-1 < one < 5 for one in late.values()), late)


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits the messages with even numbers."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def check(self, view: Any) -> Any:
        self.asked.append(int(view.body))
        even = int(view.body) % 2 == 0
        return TransactionResolution.COMMIT if even else TransactionResolution.ROLLBACK


def transaction(report: Report, topic: str) -> None:
    """A commit shows the message, a rollback does not; transactions that a dead producer left open
    are checked with another producer."""
    listener, checker = Listener(), Checker()
    dying = subprocess.run([sys.executable, __file__, sys.argv[1], "--die", topic], check=False)
    report.equal("a producer died between", 9, dying.returncode)
    with producing(topic, checker) as producer, pushing(topic, listener):
        for number in (0, 1):
            opened = producer.begin_transaction()
            producer.send(message(topic, number), opened)
            (opened.rollback if number else opened.commit)()
        report.check(
            "open transactions are checked",
            within(lambda: {2, 3} <= set(checker.asked)),
            checker.asked,
        )
        report.check(
            "committed messages arrive",
            within(lambda: {0, 2} <= set(numbers(listener.came))),
            numbers(listener.came),
        )
        time.sleep(QUIET_S)
        report.equal("and nothing else", {0, 2}, set(numbers(listener.came)))
        report.equal("nothing else is asked about", {2, 3}, set(checker.asked))


def die(topic: str) -> None:
    """A producer ends without notice and leaves two transactions open."""
    producer = Producer(configuration(), [topic], Checker())
    producer.startup()
    for number in (2, 3):
        producer.send(message(topic, number), producer.begin_transaction())
    os._exit(9)


def dead(report: Report, topic: str) -> None:
    """A message that is always refused arrives as often as its group allows; the test checks the
    rest."""
    listener = Listener(lambda _view: True)
    with producing(topic) as producer, pushing(topic, listener):
        producer.send(message(topic, 1))
        report.check("it comes again", within(lambda: len(listener.came) >= 2), listener.came)
        time.sleep(4 * QUIET_S)
        report.equal("as often as allowed", [1, 2], [one.delivery_attempt for one in listener.came])


SQL = FilterExpression(f"{PROPERTY} > 20 AND TAGS = 'red'", FilterType.SQL)
SCENARIOS: dict[str, Callable[[Report, str], None]] = {
    "simple": simple,
    "push": push,
    "tags": filtered(FilterExpression("red || blue"), lambda number: number % 3 != 1),
    "sql": filtered(SQL, lambda number: number > 20 and number % 3 == 0),
    "fifo": fifo,
    "delay": delay,
    "transaction": transaction,
    "dead": dead,
}


def run(name: str) -> None:
    report = Report(name)
    try:
        SCENARIOS[name](report, f"python-{name}")
    except Exception:
        report.check("it did not fail", False, traceback.format_exc())
    report.done()


def main() -> None:
    if sys.argv[2] == "--die":
        die(sys.argv[3])
    threads = [threading.Thread(target=run, args=[name], daemon=True) for name in sys.argv[2:]]
    for one in threads:
        one.start()
    deadline = time.monotonic() + RUN_S
    for one in threads:
        one.join(max(0.0, deadline - time.monotonic()))
    os._exit(0)  # the client leaves running threads


if __name__ == "__main__":
    main()

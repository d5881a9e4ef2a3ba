"""RocketMQ's Python client of gRPC continues while its broker restarts, and handles a message for
long.

A program of its own, run with the interpreter that has the client: ENDPOINTS TOPIC LONG STOP. It
sends numbers to TOPIC and receives them; the handler of a message of LONG takes LONG_S. Prints
`sent N` for each acknowledged send, `came N` for each received message, and for LONG `began
ATTEMPT` and `ended ATTEMPT`. When the file STOP exists it stops sending, waits until all messages
came, and prints `over`. Nothing of Turbopump is loaded.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

LONG_S = 75.0
"""A received message is hidden for 60 s at first."""
ARRIVAL_S = 60.0
PAUSE_S = 0.01
_printing = threading.Lock()


def say(*words: object) -> None:
    with _printing:
        print(*words, flush=True)


class Listener(MessageListener):  # type: ignore[misc]
    """Calls a function with each message."""

    def __init__(self, handle: Callable[[Any], None]) -> None:
        self._handle = handle

    def consume(self, view: Any) -> Any:
        self._handle(view)
        return ConsumeResult.SUCCESS


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials(), request_timeout=3)


def consume(topic: str, handle: Callable[[Any], None]) -> None:
    PushConsumer(configuration(), topic, Listener(handle), {topic: FilterExpression()}).startup()


def message(topic: str, body: bytes) -> Any:
    made = Message()
    made.topic, made.body = topic, body
    return made


def main() -> None:
    topic, long_topic, stop = sys.argv[2:]
    sent, came = set[int](), set[int]()

    def take(view: Any) -> None:
        came.add(int(view.body))
        say("came", int(view.body))

    def work(view: Any) -> None:
        say("began", view.delivery_attempt)
        time.sleep(LONG_S)
        say("ended", view.delivery_attempt)

    consume(topic, take)
    consume(long_topic, work)
    producer = Producer(configuration(), (topic, long_topic))
    producer.startup()
    producer.send(message(long_topic, b"long"))
    number = 0
    while not Path(stop).exists():
        try:
            producer.send(message(topic, b"%d" % number))
        except Exception:
            pass  # the send is not acknowledged, but may have been stored
        else:
            sent.add(number)
            say("sent", number)
        number += 1
        time.sleep(PAUSE_S)
    deadline = time.monotonic() + ARRIVAL_S
    while not sent <= came and time.monotonic() < deadline:
        time.sleep(0.1)
    say("over")
    os._exit(0)  # the client leaves running threads


if __name__ == "__main__":
    main()

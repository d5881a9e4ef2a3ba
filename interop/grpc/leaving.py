"""RocketMQ's Python client of gRPC receives, acknowledges one half, and waits for the other half.

A program of its own, run with the interpreter that has the client: ENDPOINTS TOPIC COUNT. It
receives numbers, acknowledges the even ones, and prints `popped`; then it prints `again N ATTEMPT`
for each redelivered message, acknowledges it, and prints `over` some seconds after the last odd
one. Nothing of Turbopump is loaded.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

INVISIBLE_S = 40
AWAIT_S = 3
QUIET_S = 15.0
RUN_S = 200.0


def main() -> None:
    endpoints, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=3)
    consumer = SimpleConsumer(configuration, topic, {topic: FilterExpression()}, AWAIT_S)
    consumer.startup()
    deadline = time.monotonic() + RUN_S

    def receive(until: Callable[[], bool], handle: Callable[[Any], None]) -> None:
        while not until() and time.monotonic() < deadline:
            try:
                views = consumer.receive(16, INVISIBLE_S) or ()
            except Exception:
                time.sleep(0.2)  # from a broker that has stopped
                continue
            for view in views:
                handle(view)

    came = set[int]()

    def take(view: Any) -> None:
        number = int(view.body)
        came.add(number)
        if number % 2 == 0:
            consumer.ack(view)

    receive(lambda: len(came) >= count, take)
    print("popped", flush=True)
    left = {number for number in came if number % 2}

    def take_again(view: Any) -> None:
        number = int(view.body)
        left.discard(number)
        print("again", number, view.delivery_attempt, flush=True)
        consumer.ack(view)

    receive(lambda: not left, take_again)
    quiet = time.monotonic() + QUIET_S
    receive(lambda: time.monotonic() > quiet, take_again)
    print("over", flush=True)
    os._exit(0)  # the client leaves running threads


if __name__ == "__main__":
    main()

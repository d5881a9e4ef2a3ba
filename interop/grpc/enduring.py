"""RocketMQ's Python client of gRPC sends without an end, and records the acknowledged messages.

A program of its own, run with the interpreter that has the client: ENDPOINTS TOPIC FILE STOP. A
line of FILE is `begun acked queue offset number` (times in ms); the queue is -1, because receipts
do not name it. The program ends when the file STOP exists. Nothing of Turbopump is loaded.
"""

import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from rocketmq import ClientConfiguration, Credentials, Message, Producer

THREADS = 4
PAUSE_S = 0.002
AGAIN_S = 0.01
BODY_SIZE = 128


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    endpoints, topic, file, stop = sys.argv[1:]
    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=3)
    producer = Producer(configuration, (topic,))
    producer.startup()
    lock, failed = threading.Lock(), [0]

    def run(number: int, out: TextIO) -> None:
        while not Path(stop).exists():
            made = Message()
            made.topic, made.body = topic, b"%d " % number + bytes(BODY_SIZE)
            begun_ms = now_ms()
            try:
                offset = producer.send(made).offset
            except Exception:
                failed[0] += 1
                time.sleep(AGAIN_S)
            else:
                with lock:
                    print(begun_ms, now_ms(), -1, offset, number, file=out, flush=True)
                time.sleep(PAUSE_S)
            number += THREADS

    with Path(file).open("w") as out:
        threads = [threading.Thread(target=run, args=(own, out)) for own in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{failed[0]} sends failed")
    producer.shutdown()


if __name__ == "__main__":
    main()

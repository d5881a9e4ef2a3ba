"""The CPU time of the loop's thread for one send, with I/O threads and without.

    python -m bench.loop_share

On many cores this time is the serial part of the work: it limits the rate, however many I/O threads
there are. Requests of all connections are sent while the loop does nothing else, so that a turn of
the loop finds all of them, as it does when its thread is busy all the time. On two cores no load
could keep it busy.
"""

import asyncio
import socket
import statistics
import tempfile
import time
from pathlib import Path

import uvloop
from bench.bench_round_trips import send_frame

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode

ROUNDS = 400
WARMUP = 40
TURNS = 8
"""Turns of the loop that are enough to serve the requests of a round."""
READ_S = 0.003
"""Time in which the I/O threads read the requests."""
CASES = {"64 x 1": (64, 1), "256 x 1": (256, 1), "8 x 32": (8, 32), "64 x 32": (64, 32)}


async def measure(folder: Path, threads: int, connections: int, in_flight: int) -> float:
    """Return the median of the loop's CPU time in us for a message."""
    config, _ = load_config(
        f"listenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir={folder}\nioThreads={threads}\n"
    )
    node = BrokerNode(config)
    await node.start()
    host, _, port = node.address.partition(":")
    peers = [socket.create_connection((host, int(port))) for _ in range(connections)]
    frame = b"".join(send_frame(opaque) for opaque in range(in_flight))
    spent: list[int] = []
    empty: list[int] = []
    try:
        for number in range(WARMUP + ROUNDS):
            empty.append(await turns())
            for peer in peers:
                peer.sendall(frame)
            time.sleep(READ_S)  # the loop must not run
            if number >= WARMUP:
                spent.append(await turns())
            for peer in peers:
                await answers(peer, in_flight)
    finally:
        for peer in peers:
            peer.close()
        await node.stop()
    of_requests = statistics.median(spent) - statistics.median(empty)
    return of_requests / connections / in_flight / 1_000


async def turns() -> int:
    """Run some turns of the loop; returns their CPU time in ns."""
    begin = time.thread_time_ns()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return time.thread_time_ns() - begin


async def answers(peer: socket.socket, count: int) -> None:
    """Receive `count` answers."""
    data = b""
    while count:
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            while True:
                try:
                    data += peer.recv(1 << 16, socket.MSG_DONTWAIT)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0)
            continue
        data = data[4 + int.from_bytes(data[:4], "big") :]
        count -= 1
    assert not data


def main() -> None:
    """Print a table."""
    for name, (connections, in_flight) in CASES.items():
        row = []
        for threads in (0, 2):
            with tempfile.TemporaryDirectory() as folder:
                work = measure(Path(folder), threads, connections, in_flight)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    row.append(runner.run(work))
        print(f"{name}: {row[0]:.2f} us a message without I/O threads, {row[1]:.2f} us with 2")


if __name__ == "__main__":
    main()

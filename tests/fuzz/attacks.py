"""A broker under attack: its memory, and the slowest send of an honest client, for each attack.

    python -m tests.fuzz.attacks --seconds 20          all of them, 20 s each
    python -m tests.fuzz.attacks --seconds 60 pulls    one
    python -m tests.fuzz.attacks halves delays pops groups     backlogs (backlogs.py), due at once
    python -m tests.fuzz.attacks --share 0.1 pops      a tenth of a backlog
    python -m tests.fuzz.attacks --seconds 600 mixed   each connection its own, new seeds
    python -m tests.fuzz.attacks --sanitized mixed     the broker's kernels under the sanitizers

The broker is a process of its own with plain and TLS peers on one port, and so are the attackers: a
number of connections that each do the same, again when they are cut; half of them use TLS.
Meanwhile a client sends one message after the other. A line for each attack shows the worst
figures.

All of them share this machine's processors, also with other programs. So the kernel's figures
(schedstat) show how long the broker and the client were ready to run and waited for a processor
during the slowest send, and how much the broker computed during any; broker and client, which
elsewhere have machines of their own, run at a higher priority than the attackers where that is
permitted. An attack fails only if the time without those waits is too long. The time that the
attackers ran shows the strength of an attack.
"""

import argparse
import asyncio
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import asan, io_threads
from tests.fuzz.backlogs import BACKLOGS, GROUP
from tests.io_threads.sitecustomize import VARIABLE
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.command import Command, encode, new_request
from turbopump.net.wire.headers.send import SendMessageRequest

MEMORY_MAX_MB: Final = 300
SEND_MAX_MS: Final = 100
PEERS: Final = 50
MIB: Final = 1 << 20
ROUND_S: Final = 30
"""Seconds after which the attackers begin again, with other seeds."""
DELIVERED_MAX_S: Final = 300
"""Time in which all of a backlog has to be delivered."""
NICER: Final = 5
"""Difference of the broker's and the client's nice value to the usual one, which attackers have."""

SERVER: Final = """
import asyncio, gc, sys, uvloop
from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.node import BrokerNode

async def main():
    config, _ = load_config(open(sys.argv[1]).read(), sys.argv[1])
    node = BrokerNode(config)
    await node.start()
    gc.freeze()  # as a command that serves does
    print(node.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await node.stop()

uvloop.run(main())
"""


def frame(code: int, body: bytes = b"", **fields: str) -> bytes:
    return b"".join(encode(Command(code, opaque=7, fields=fields, body=body)))


def pull(offset: int = 0) -> bytes:
    return frame(
        11,
        consumerGroup="attackers",
        topic="Honest",
        queueId="0",
        queueOffset=str(offset),
        maxMsgNums="32",
        sysFlag="4",
        commitOffset="0",
        suspendTimeoutMillis="0",
        subVersion="0",
        subscription="*",
        expressionType="TAG",
    )


def long_texts(chance: random.Random) -> bytes:
    text = "x" * chance.choice([1_000, 60_000, 120_000])
    queue = b'{"topic":"T","brokerName":"b","queueId":1}'
    return chance.choice(
        [
            frame(
                41, b'{"consumerGroup":"%b","clientId":"c","mqSet":[%b]}' % (text.encode(), queue)
            ),
            frame(34, b'{"clientID":"%b"}' % text.encode()),
            frame(35, clientID=text, producerGroup=text),
            frame(11, topic=text, consumerGroup=text, queueId="0"),
            frame(17, topic=text, defaultTopic=text, readQueueNums="1"),
        ]
    )


def large_counts(chance: random.Random) -> bytes:
    queue = b'{"topic":"T","brokerName":"b","queueId":%d}'
    many = b",".join(queue % number for number in range(chance.choice([1_000, 20_000])))
    return chance.choice(
        [
            frame(34, b'{"clientID":"c","consumerDataSet":[' + b"{}," * (5 * MIB) + b"{}]}"),
            frame(41, b'{"consumerGroup":"g","clientId":"c","mqSet":[%b]}' % many),
            frame(18, b'{"topicConfigList":[' + b"{}," * 500_000 + b"{}]}"),
            frame(200, b"[" * (8 * MIB)),
            frame(225, b'{"groupConfigList":[' + b'{"groupName":"g"},' * 50_000 + b"{}]}"),
        ]
    )


def pipelined(chance: random.Random) -> bytes:
    return chance.choice([frame(21), frame(43), frame(201), pull(), frame(28)]) * 1_000


INCOMPLETE: Final = (15 * MIB).to_bytes(4, "big") + bytes(4 * MIB)

ATTACKS: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "nothing": lambda chance: b"",
    "texts": long_texts,
    "counts": large_counts,
    "pulls": lambda chance: pull() * 1_000,
    "answers": pipelined,
    "incomplete": lambda chance: INCOMPLETE,
    "cuts": lambda chance: pipelined(chance)[: chance.randrange(1, 100_000)],
}
BESIDE: Final[dict[str, Callable[[random.Random], bytes]]] = {
    # Producers of the half messages, which never send a decision.
    "halves": lambda chance: frame(
        34,
        b'{"clientID":"c%d","producerDataSet":[{"groupName":"%b"}]}'
        % (chance.randrange(1_000), GROUP.encode()),
    ),
}
"""Messages that attackers send beside a backlog."""
READS: Final = frozenset({"texts", "counts", "halves"})
MIXED: Final = "mixed"


async def attacker(address: str, name: str, seed: int) -> None:
    """Send the attack's requests; read little or nothing, and disconnect at any moment."""
    chance = random.Random(seed)
    if name == MIXED:
        name = chance.choice([one for one in ATTACKS if one != "nothing"])
    sent = [{**ATTACKS, **BESIDE}[name](chance) for _ in range(4)]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    while True:
        with suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=context if seed % 2 else None, limit=1024
            )
            try:
                while True:
                    writer.write(chance.choice(sent))
                    await asyncio.wait_for(writer.drain(), 5)
                    if name in READS:
                        await asyncio.wait_for(reader.read(1024), 5)
                    if name == "cuts" and chance.random() < 0.3:
                        break
                    await asyncio.sleep(0.05)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.02)


async def attack(address: str, name: str, seed: int) -> None:
    await asyncio.gather(*(attacker(address, name, seed + number) for number in range(PEERS)))


@dataclass(frozen=True, order=True)
class Sent:
    """A send of the honest client; all in ms."""

    took: float
    waited: float
    """Part of the time in which the broker's loop or the client could have run and had no
    processor.
    """
    computed: float
    """Time that the broker's loop computed, for any of its peers."""


def schedule(process: int | str) -> tuple[float, float]:
    """Time in ms that the main thread of a process ran, and that it waited for a processor."""
    ran, waited, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return int(ran) / 1e6, int(waited) / 1e6


def threads_waited(process: int) -> dict[str, float]:
    """Time in ms that each other thread of a process waited for a processor, if the broker has I/O
    threads: a request passes one of them before the loop, and after it."""
    if not os.environ.get(VARIABLE):
        return {}
    waited = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        if task.name != str(process):
            with suppress(OSError):  # it has ended
                waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e6
    return waited


async def honest(address: str, pid: int, sends: list[Sent]) -> None:
    client = Client(lambda: int(time.time() * 1000))
    header = SendMessageRequest("honest", "Honest", "TBW102", 4, 0, 0, 0, 0, properties="")
    try:
        while True:
            (ran, waited), (_, own) = schedule(pid), schedule("self")
            threads = threads_waited(pid)
            began = time.perf_counter()
            with suppress(RemotingError):
                await client.call(address, new_request(10, header, b"x" * 1000), 60_000)
            took = (time.perf_counter() - began) * 1000
            (ran_then, waited_then), (_, own_then) = schedule(pid), schedule("self")
            of_threads = [ms - threads.get(one, 0) for one, ms in threads_waited(pid).items()]
            waits = min(took, waited_then - waited + own_then - own + max(of_threads, default=0))
            sends.append(Sent(took, waits, ran_then - ran))
            await asyncio.sleep(0.002)
    finally:
        await client.close()


def memory_mb(pid: int) -> dict[str, int]:
    """Memory of the process in MB: all, and the part that is no page of a file."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return {key: int(values[key].split()[0]) // 1024 for key in ("VmRSS", "RssAnon")}


class Attackers:
    """A process that attacks, and another with other seeds after a while."""

    def __init__(self, name: str, address: str, seed: int) -> None:
        self.name, self.address, self.seed = name, address, seed
        self.process: subprocess.Popen[bytes] | None = None
        self.until = self.ran = 0.0

    def go_on(self) -> None:
        """Start the attackers, or restart them if it is time."""
        if (
            (self.name in BESIDE or self.name in ATTACKS)
            and self.name != "nothing"
            and time.monotonic() >= self.until
        ):
            self.end()
            self.until = time.monotonic() + ROUND_S
            command = [sys.executable, "-m", "tests.fuzz.attacks", "--at", self.address]
            self.process = subprocess.Popen([*command, "--seed", str(self.seed), self.name])
            with suppress(PermissionError, ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self.process.pid, 0)
            self.seed += PEERS

    def end(self) -> None:
        """Kill it, so that all its connections break."""
        if self.process is not None:
            self.ran += schedule(self.process.pid)[0] / 1000
            self.process.kill()
            self.process.wait()
            self.process = None


async def play(name: str, address: str, pid: int, options: argparse.Namespace) -> bool:
    """Play one attack; return whether its worst figures are within the aims.

    A backlog is played until all of it is delivered.
    """
    sends: list[Sent] = []
    client = asyncio.ensure_future(honest(address, pid, sends))
    others = Attackers(name, address, options.seed)
    most = {"VmRSS": 0, "RssAnon": 0}
    began = time.monotonic()
    end = began + options.seconds
    left = 0
    try:
        while time.monotonic() < end and Path(f"/proc/{pid}/fd").exists():
            others.go_on()
            await asyncio.sleep(0.2)
            with suppress(OSError, KeyError):
                now = memory_mb(pid)
                most = {key: max(most[key], now[key]) for key in most}
            if name in BACKLOGS and time.monotonic() >= end:
                left = await BACKLOGS[name].left(address, options.share)
                if left and time.monotonic() < began + DELIVERED_MAX_S:
                    end = time.monotonic() + 1
    finally:
        others.end()
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)
    if left:
        print(f"{name:11} {left} messages of the backlog were not delivered   OVER", flush=True)
    return is_responsive(name, sends, most, others.ran) and not left


def is_responsive(name: str, sends: list[Sent], most: dict[str, int], ran: float) -> bool:
    """Print a line about an attack; whether its worst figures are within the aims."""
    sends.sort()
    if not sends:
        print(f"{name:11} no send was answered   OVER", flush=True)
        return False
    worst = sends[-1]
    own = max(sent.took - sent.waited for sent in sends)
    ok = most["RssAnon"] <= MEMORY_MAX_MB and own <= SEND_MAX_MS
    print(
        f"{name:11} {len(sends):7} sends, p99 {sends[len(sends) * 99 // 100].took:6.1f} ms, "
        f"slowest {worst.took:6.1f} ms ({worst.waited:.1f} of it waiting for a processor), "
        f"slowest without such waits {own:.1f} ms, at most {max(s.computed for s in sends):.1f} ms "
        f"computed by the broker in one, memory {most['RssAnon']} MB anonymous, "
        f"{most['VmRSS']} MB in all; the attackers ran {ran:.1f} s{'' if ok else '   OVER'}",
        flush=True,
    )
    return ok


def write_conf(folder: str, more: str = "") -> Path:
    """Write the file of a broker whose store is in that folder."""
    conf = Path(folder, "broker.conf")
    properties = f"storePathRootDir={folder}/store\nlistenPort=0\nbrokerIP1=127.0.0.1\n{more}"
    conf.write_text(properties)
    return conf


def serve_backlog(name: str, options: argparse.Namespace) -> list[bool]:
    """Make a backlog, and play it against a broker that starts when all of it is due."""
    backlog = BACKLOGS[name]

    def fill(address: str, _pid: int) -> list[bool]:
        asyncio.run(backlog.fill(address, options.share))
        return []

    with tempfile.TemporaryDirectory() as folder:
        write_conf(folder, backlog.conf)
        began = time.monotonic()
        results = serve(fill, options, folder)
        filled = time.monotonic()
        print(f"{name:11} made in {filled - began:.0f} s", flush=True)
        time.sleep(backlog.due_s)
        return [*results, *serve_attacked([name], options, folder)]


def serve_attacked(names: list[str], options: argparse.Namespace, folder: str) -> list[bool]:
    """Play attacks against a broker made for them."""

    def attacked(address: str, pid: int) -> list[bool]:
        return [asyncio.run(play(name, address, pid, options)) for name in names]

    return serve(attacked, options, folder)


def serve(
    work: Callable[[str, int], list[bool]], options: argparse.Namespace, folder: str
) -> list[bool]:
    """Run a broker of that folder while work is done with its address and process id; the results
    of the work, and whether the broker ended well."""
    conf, log = Path(folder, "broker.conf"), Path(folder, "broker.log")
    environment = dict(os.environ)
    if options.sanitized:
        asan.build()
        environment = asan.environment()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(conf)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None and process.stdin is not None
        address = process.stdout.readline().strip()
        results = work(address, process.pid)
        with suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
    if code:
        print(f"the broker ended with {code}:\n{log.read_text()[-10_000:]}")
    # Sanitized the broker is slow and large: it only has to live.
    return [code == 0] if options.sanitized else [*results, code == 0]


def main() -> int:
    """Attack, or play attacks; 0 if all was within the aims."""
    parser = argparse.ArgumentParser(description="A broker under attack.")
    parser.add_argument("attacks", nargs="*", default=[*ATTACKS, *BACKLOGS])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the backlogs")
    parser.add_argument("--sanitized", action="store_true", help="with instrumented kernels")
    parser.add_argument("--at", help="attack what is there instead of a broker made for it")
    options = parser.parse_args()
    if options.at:
        asyncio.run(attack(options.at, options.attacks[0], options.seed))
    io_threads.switch_on()
    with suppress(PermissionError):
        os.nice(-NICER)
    names = [name for name in options.attacks if name not in BACKLOGS]
    results = []
    if names:
        with tempfile.TemporaryDirectory() as folder:
            write_conf(folder)
            results += serve_attacked(names, options, folder)
    for name in options.attacks:
        if name in BACKLOGS:
            results += serve_backlog(name, options)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The unmodified Java and Go clients send through kills of the master: one run, judged.

    python -m interop.support.failover --kills 50 --clients java go --poll-ms 1000
        [--target rocketmq]

Each client is its own program that sends without pause to its own topic and writes a line for each
acknowledgement. The run prints the times from each kill to a client's first success, which depend
mostly on how often the client asks for the route (30 s by default; the Go client has no setting),
and the lost and repeated messages. docs/TESTING.md has the last recorded result, and
`python -m tests.results testing --grep support.failover` prints the earlier ones.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from interop.support import toolchain
from interop.support.audit import audited
from interop.support.controlled import Controlled
from interop.support.groups import Kind, RocketMQ, Turbopump
from interop.support.kills import SETTLED_S, KillTimes, Limits, judge, kill_masters, spread
from interop.support.processes import Process
from interop.support.senders import Ledger
from interop.support.suites import java_client, parse

KINDS: dict[str, Kind] = {"rocketmq": RocketMQ(), "turbopump": Turbopump()}
CLIENTS = ("java", "java-4.9", "go")
SCENARIO = "through-kills"
ROUTE_POLL_MS = 30_000
"""pollNameServerInterval of all RocketMQ clients by default."""
LIMITS = Limits(first_s=90.0, whole_s=180.0)
"""Limits in seconds. A first success takes up to two polls of the route; all in sync takes
RocketMQ's own time."""
START_S, END_S = 60.0, 60.0


class Program:
    """A client program that sends until it is stopped."""

    def __init__(self, name: str, group: Controlled, folder: Path, poll_ms: int) -> None:
        folder.mkdir(parents=True)
        self.name = name
        self._stop = folder / "stop"
        acks, prefix = folder / "acks", name.replace(".", "")
        self.ledger = Ledger(f"{prefix}-kills", acks)
        spec = f"{SCENARIO}:{acks},{self._stop},{poll_ms}"
        if name == "go":
            master = group.master
            assert master is not None
            command = [
                str(toolchain.CACHE / "go-client"),
                group.namesrv_address,
                master.address,
                prefix,
                spec,
            ]
            self.process = Process("client", command, folder, environment={"HOME": str(folder)})
        else:
            module = "client-4.9" if name == "java-4.9" else "client-5.5"
            self.process = java_client(module, [group.namesrv_address, prefix, spec], folder)

    def wait_sending(self, group: Controlled) -> None:
        """Return when a send was acknowledged."""

        def begun() -> bool:
            assert self.process.running, self.process.tail()
            self.ledger.refresh()
            return bool(self.ledger.places)

        group.until(f"{self.name} sends", begun, START_S)

    def stop(self) -> None:
        """Wait until the program ends by itself, with its own checks passed."""
        self._stop.touch()
        self.process.wait(END_S)
        checks = parse(self.process.out.read_text(), [SCENARIO])[SCENARIO]
        assert checks.ended and not checks.failed, "\n".join([*checks.failed, self.process.tail()])


def through_kills(
    kind: Kind,
    clients: Sequence[str],
    kills: int,
    poll_ms: int,
    folder: Path,
    *,
    paced_by: Sequence[str],
    say: Callable[[str], None],
) -> KillTimes:
    """Start a new group, play its kills and end it. The next kill waits for a first success of the
    clients that pace; other clients have only that time."""
    group = Controlled(folder, kind, [kind] * 3, [kind] * 3)
    programs: list[Program] = []
    seen = KillTimes()
    try:
        group.start()
        programs.extend(Program(name, group, folder / name, poll_ms) for name in clients)
        for program in programs:
            program.wait_sending(group)
        time.sleep(SETTLED_S)
        pacing = [program.ledger for program in programs if program.name in paced_by]
        kill_masters(group, pacing, kills, LIMITS, seen, say)
        for program in programs:
            program.stop()
        ledgers = [program.ledger for program in programs]
        judge(group, ledgers, seen)
        broken, report = audited(group, ledgers, folder)
        for line in report:
            say(line)
        assert not broken or kind.name != "turbopump", "a promise was broken"
    finally:
        for program in programs:
            if program.process.running:
                program.process.kill()
        group.abandon()
    return seen


def main() -> int:
    """Run the command line and print; 1 if a message was lost or stored twice."""
    parser = argparse.ArgumentParser(
        prog="python -m interop.support.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=["java", "go"])
    parser.add_argument("--poll-ms", type=int, default=ROUTE_POLL_MS)
    parser.add_argument("--target", choices=sorted(KINDS), default="turbopump")
    given = parser.parse_args()
    missing = toolchain.missing_tools()
    if missing:
        sys.exit("the run is not possible: " + "; ".join(missing))
    toolchain.build_java()
    toolchain.build_go()
    folder = toolchain.CACHE / "failover"
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.monotonic()
    seen = through_kills(
        KINDS[given.target],
        given.clients,
        given.kills,
        given.poll_ms,
        folder,
        paced_by=given.clients,
        say=lambda line: print(f"{time.monotonic() - begin:6.0f} s  {line}", flush=True),
    )
    print(f"{seen.kills} kills; seconds are p50 / p99 / max")
    print(f"restart to all in sync: {spread(seen.whole_s)}")
    for topic, found in seen.found.items():
        print(f"{topic}: kill to first success {spread(seen.first_s[topic])}; {found}")
    shutil.rmtree(folder, ignore_errors=True)
    return int(any(one.lost or one.moved or one.twice for one in seen.found.values()))


if __name__ == "__main__":
    sys.exit(main())

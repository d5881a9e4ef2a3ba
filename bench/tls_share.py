"""Compares plain and encrypted loads, in turn on one broker, by processor time.

    python -m bench.tls_share [--rounds 5] [--only 64x1 8x32]

The ratio comes from a single run on a machine, so other programs that slow a load slow the other,
too.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

from bench import tls_load
from bench.versus.servers import run_server
from bench.versus.workloads import Target

LOADS = {"64x1": ("-w", "64", "-s", "128"), "8x32": ("-w", "8", "--in-flight", "32", "-s", "128")}
FOLDER = Path(__file__).resolve().parent / ".out" / "tls_share"
WARMING = 50_000
WANTED = 60
"""Target: messages per second of processor time, as a percentage of the plain load's."""


def measure_load(name: str, rounds: int, duration_s: float) -> None:
    """Run the load `name` plain and by TLS in turn, `rounds` times for `duration_s`; print each
    run, then the ratio of their CPU times."""
    with run_server("turbopump", FOLDER, {}) as server:
        plain = server.load_target()
        sealed = replace(plain, preload=tls_load.compile_library(FOLDER / "tls"))
        targets: dict[str, Target] = {"plain": plain, "TLS": sealed}
        used: dict[str, list[float]] = {kind: [] for kind in targets}
        for target in targets.values():
            target.warm_up(WARMING)
        for number in range(rounds):
            kinds = list(targets) if number % 2 == 0 else list(targets)[::-1]
            for kind in kinds:
                found = targets[kind].measure_sends(LOADS[name], duration_s, 0.2)
                used[kind].append(found.cpu_us)
                cpu = f"{found.cpu_us:.2f} us of CPU"
                print(f"  {name} {kind}: {found.messages_per_s:,.0f}/s, {cpu}", flush=True)
    middle = {kind: statistics.median(values) for kind, values in used.items()}
    least = {kind: min(values) for kind, values in used.items()}
    print(
        f"{name}: plain {middle['plain']:.2f} us, TLS {middle['TLS']:.2f} us: keeps"
        f" {middle['plain'] / middle['TLS']:.0%} (wanted {WANTED} %);"
        f" of the least of each {least['plain'] / least['TLS']:.0%}"
    )


def main() -> None:
    """Parse the command line and measure the chosen loads."""
    parser = argparse.ArgumentParser(prog="python -m bench.tls_share")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=2.0, help="seconds of a load")
    parser.add_argument("--only", nargs="+", choices=LOADS, default=list(LOADS))
    chosen = parser.parse_args()
    for name in chosen.only:
        measure_load(name, chosen.rounds, chosen.duration)


if __name__ == "__main__":
    main()

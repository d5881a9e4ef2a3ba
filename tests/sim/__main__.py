"""`make sim SUITE=store SEEDS=20000` or `SEED=n`: play seeds, print how to replay a failing one."""

import argparse
import logging
import multiprocessing
import sys
import time
import traceback

from tests.sim import config_suite, store_suite

SUITES = {"store": store_suite.run_seed, "config": config_suite.run_seed}
CHUNK = 200


def play_chunk(task: tuple[str, int, int]) -> tuple[int, int, int, list[tuple[int, str]]]:
    """Play seeds [first, last): seeds played, acknowledgements, power cuts, failures."""
    suite, first, last = task
    logging.disable(logging.CRITICAL)
    acked = cuts = 0
    failures: list[tuple[int, str]] = []
    for seed in range(first, last):
        try:
            model = SUITES[suite](seed)
            acked += model.acked
            cuts += model.ends
        except Exception:
            failures.append((seed, traceback.format_exc()))
    return last - first, acked, cuts, failures


def main() -> int:
    """Exit code 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="store")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one alone, in this process")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.seed is not None:
        print(SUITES[options.suite](options.seed))
        return 0
    started = time.monotonic()
    end = options.first + options.seeds
    tasks = [
        (options.suite, first, min(first + CHUNK, end))
        for first in range(options.first, end, CHUNK)
    ]
    played = acked = cuts = 0
    failures: list[tuple[int, str]] = []
    with multiprocessing.Pool(options.jobs) as pool:
        for counts in pool.imap_unordered(play_chunk, tasks):
            played += counts[0]
            acked += counts[1]
            cuts += counts[2]
            failures += counts[3]
    seconds = time.monotonic() - started
    for seed, text in sorted(failures)[:5]:
        print(text)
        print(f"replay: make sim SUITE={options.suite} SEED={seed}\n")
    print(
        f"{options.suite}: {played} seeds in {seconds:.0f} s ({played / seconds:.0f}/s), "
        f"{acked} messages acknowledged, {cuts} power cuts and kills, {len(failures)} seeds failed"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make chaos ROUNDS=120 FIRST=1`: stories of a dozen rounds each, a new group for each seed.

Ends at the first finding and leaves that group's folder to be looked at.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import uvloop
from interop.support.tracebacks import tracebacks
from tests import io_threads
from tests.integration.ha.group import Group
from tests.integration.ha.story import Story, Totals

ROUNDS_OF_A_GROUP = 12
SYNC_FLUSH = "flushDiskType=SYNC_FLUSH\n"


async def play(folder: Path, seed: int, rounds: int, more: str) -> Totals:
    """Play one group's story; raises Finding."""
    group = Group(folder, seed, f"slaveReadEnable=true\n{more}")
    try:
        return await play_of(group, rounds)
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}:", *group.story, str(folder)]))
        raise


async def play_of(group: Group, rounds: int) -> Totals:
    """Start a group, play its story, and stop it."""
    try:
        await group.start()
        return await Story(group).play(rounds)
    finally:
        await group.stop()


def main() -> int:
    """Rounds from the seed `first` on; 1 after a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    io_threads.switch_on()
    total = Totals()
    for seed in itertools.count(given.first):
        rounds = min(ROUNDS_OF_A_GROUP, given.rounds - total.rounds)
        if rounds <= 0:
            break
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        try:
            totals = uvloop.run(play(folder, seed, rounds, SYNC_FLUSH if seed % 2 else ""))
        except Exception:
            traceback.print_exc()
            print(f"finding: python -m tests.integration.ha --first {seed}; files: {folder}")
            return 1
        found = tracebacks(folder)
        if found:
            print(found[0])
            print(f"tracebacks in nodes' logs: {len(found)}; seed {seed}; files: {folder}")
            return 1
        shutil.rmtree(folder)
        for name in vars(totals):
            setattr(total, name, getattr(total, name) + getattr(totals, name))
        print(f"seed {seed}: {totals}", flush=True)
    print(f"no finding: {total}")
    print("tracebacks in nodes' logs: 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())

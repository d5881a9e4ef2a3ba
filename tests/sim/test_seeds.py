"""A part of the seeds that `make sim` plays, in every run of the tests.

The seeds of tests/sim/test_planted.py are of these: without a planted bug they find nothing.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim import config_suite, store_suite
from tests.sim.planted import ABOUT
from tests.sim.share import played

STORE_SEEDS = range(600)
# Number of seeds for each kind of trouble as the theme.
THEMED_SEEDS = range(300)
CONFIG_SEEDS = range(600)
# Seeds that found bugs which are mended. A change of the suite's steps changes their stories, so
# each bug also has a test of its own.
REGRESSIONS = {
    "the name of a queue file that a killed start made": 101199,
    "the name of a queue file that was just made for a topic created again": 101370,
    "the same before the first unit of it": 101537,
    "an empty file of a topic created again is in the way": 109681,
    "the removal of a log file that a killed truncation had not synced": 322434,
    "a lost index file is missed although the log begins later": 304631,
    "the name of a config file that a killed save had not synced": 314255,
    "files of a deleted topic come back when its records were cut": 459704,
    "an older checkpoint cuts units whose records have expired": 408395,
    "RocketMQ's times count queues that a recovery has cut": 405957,
    "a queue of expired records is made anew from a log without them": 2050532,
    "a queue that lost its first file and was cut to nothing": 4002860,
    "the removed file of such a queue counts as expired": 5196186,
    "an empty file of a deleted topic says how far it had counted": 5195118,
    "the same with a log that begins later": 5417943,
    "a removed log file comes back after a hole": 5312075,
    "a filler with one of its sectors": 5430263,
    "a queue file of expired records before a file that was lost": 6245233,
    "index files that end at one time because a clock was set back": 6228099,
    "an index file that was cut ends when the file before it ends": 6151064,
    "a checkpoint torn in its writing passes for a checkpoint of RocketMQ": 10084423,
    "a queue made anew has blanks where units were of what had expired": 20197970,
    "the count of an empty queue goes with its file when queues are doubted": 20204324,
    "the same after a truncation": 20207112,
    "an empty file that a power cut left, where the checkpoint knows that age took none": 21121644,
    "a start that failed had removed names which the next one took for gone": 22244551,
}
# So that the processes of a parallel run share them.
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_store(part: int) -> None:
    play(store_suite.run_seed, played(STORE_SEEDS)[part::PARTS])


@pytest.mark.parametrize("about", sorted(set(ABOUT.values())), ids=" and ".join)
def test_store_about(about: tuple[str, ...]) -> None:
    play(lambda seed: store_suite.run_seed(seed, about), played(THEMED_SEEDS))


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int) -> None:
    store_suite.run_seed(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_config(part: int) -> None:
    play(config_suite.run_seed, CONFIG_SEEDS[part::PARTS])


def play(run_seed: Callable[[int], Any], seeds: range) -> None:
    for seed in seeds:
        run_seed(seed)

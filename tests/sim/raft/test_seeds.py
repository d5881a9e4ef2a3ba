"""The quorum under simulation: a part of the seeds that `make sim SUITE=raft` plays, and the proof
that the suite has teeth: each planted bug is found in seeds that find nothing without it.
"""

import pytest

from tests.sim.planting import Plant
from tests.sim.raft import suite as raft_suite
from tests.sim.raft.checkers import History
from tests.sim.raft.planted import ABOUT, BUGS
from tests.sim.share import check_found, played
from turbopump.controller.raft.log import Entry, Log

SEEDS = range(400)
# Number of seeds for each bug, with the trouble that it needs as the theme.
THEMED_SEEDS = range(300)
# Those play ten times the time of others.
SLOW_SEEDS = range(100)
# So that the processes of a parallel run share them.
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_quorum(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        raft_suite.run_seed(seed)


@pytest.mark.parametrize("about", sorted(set(ABOUT.values())), ids=" and ".join)
def test_quorum_about(about: tuple[str, ...]) -> None:
    for seed in played(SLOW_SEEDS if raft_suite.SLOW_SYNC in about else THEMED_SEEDS):
        raft_suite.run_seed(seed, about)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = ABOUT.get(bug, ())
    seeds = THEMED_SEEDS if about else SEEDS
    check_found(bug, monkeypatch, lambda seed: raft_suite.run_seed(seed, about), seeds)


def test_a_seed_is_the_same_again() -> None:
    runs = [raft_suite.Run(7) for _ in range(2)]
    for run in runs:
        run.play()
    assert runs[0].disk.digest() == runs[1].disk.digest()
    assert runs[0].rng.getstate() == runs[1].rng.getstate()


# The checkers themselves


def log_of(*terms: int) -> Log:
    log = Log()
    for number, term in enumerate(terms):
        log.append_entries([log.next_entry(term, b"%d" % number)])
    return log


def test_one_leader_a_term() -> None:
    history = History()
    history.leads("n0", 3, log_of(3), -1)
    with pytest.raises(AssertionError, match="Raft-1: n0 and n1 lead in term 3"):
        history.leads("n1", 3, log_of(3), -1)


def test_terms_and_votes() -> None:
    history = History()
    history.tells_term("n0", 3)
    history.votes_for("n0", 3, "n1")
    history.votes_for("n0", 3, "n1")
    with pytest.raises(AssertionError, match="Raft-2"):
        history.tells_term("n0", 2)
    with pytest.raises(AssertionError, match="Raft-3"):
        history.votes_for("n0", 3, "n2")


def test_a_leader_only_appends_and_counts_its_own() -> None:
    history = History()
    history.leads("n0", 3, log_of(1, 2, 3), -1)
    with pytest.raises(AssertionError, match="Raft-8: n0 commits 1 of term 2 in term 3"):
        history.leads("n0", 3, log_of(1, 2, 3), 1)
    with pytest.raises(AssertionError, match="Raft-4"):
        history.leads("n0", 3, log_of(1, 2), -1)


def test_logs_match() -> None:
    history = History()
    history.appends("n0", -1, log_of(1, 1).entries())
    history.appends("n1", -1, log_of(1, 1).entries())
    with pytest.raises(AssertionError, match="Raft-5"):
        history.appends("n2", 0, (Entry(1, 1, 48, b"1"),))


def test_applied_entries_stay() -> None:
    history = History()
    log = log_of(1, 1, 1)
    state = 0
    for entry in log.entries():
        state = history.applies("n0", state, entry, 1)
    other = Entry(1, 2, 49, b"other")
    with pytest.raises(AssertionError, match="Raft-7: n1 applies"):
        history.applies("n1", 0, other, 2)
    with pytest.raises(AssertionError, match="Raft-7: n1 has another state at 1"):
        history.applies("n1", 0, log.entries()[1], 2)
    with pytest.raises(AssertionError, match="Raft-9: n1 cuts entry 2"):
        history.cuts("n1", log.entries()[2:])
    history.cuts("n1", (Entry(2, 2, 0, b"another"),))
    missing = "Raft-6: n1 leads in term 2 without entry 2 of term 1"
    with pytest.raises(AssertionError, match=missing):
        history.leads("n1", 2, log_of(1, 1), -1)

"""The share of seeds, planted bugs and crashes that a run of the tests plays.

Owns that share alone. `make test` plays a sixth of the seeds without a planted bug (a third of
fewer than MANY_SEEDS). Of the suites of whole groups it plays a third of the planted bugs, but none
of LONG_BUGS, and a third of the troubles of disks; of the operations at which a crash is tried, a
quarter. With TURBOPUMP_ALL_SEEDS=1 all are played; with TURBOPUMP_ALL_SEEDS=rest, which `.ci/run`
sets for a run at the lowest priority, the other two thirds of the planted bugs alone.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from tests.failures import logged
from tests.sim.planting import Patch, Plant
from turbopump.engine.types import StoreError

_SHARE: Final = os.environ.get("TURBOPUMP_ALL_SEEDS")
IS_WHOLE: Final = _SHARE == "1"
IS_REST: Final = _SHARE == "rest"
MANY_SEEDS: Final = 20
SEEDS_PART: Final = 6
PART: Final = 3
CRASHES: Final = 4
SLOW_SUITES: Final = (
    *("acting", "escapes", "group", "payments", "poppers", "pops", "reminders"),
    *("timers", "transactions"),
)
"""Suites in which a planted bug takes seconds."""
LONG_BUGS: Final = frozenset(
    {
        "a_new_master_begins_at_its_own_time",
        "batches_of_one_broker",
        "chains_of_another_precision_stay",
        "check_points_and_acknowledgements_escape_to_different_masters",
        "ids_are_not_compared",
        "offsets_move_by_check_points_of_a_former_life",
        "popped_messages_leave_when_they_are_sent",
        "progress_does_not_rest_while_the_clock_is_behind",
        "proofs_that_are_passed_over",
        "slow_syncs_are_not_reported",
        "what_no_master_took_counts",
    }
)
"""Planted bugs of these suites, or ends of their tests' names, that take more than five seconds of
a processor."""
DISKS: Final = "test_disks.py::test_about_each_trouble"
SHOWN_BY: Final = {
    "a_broker_forgets_locks_and_votes": 34,
    "a_deposed_master_delivers": 13,
    "a_leader_whose_disk_hangs_leads_on": 18,
    "a_master_serves_at_once": 6,
    "a_new_master_begins_at_its_own_time": 20,
    "a_replica_waits_for_a_master_that_was_there": 58,
    "a_wheel_is_believed_after_a_power_cut": 11,
    "acknowledgements_are_answered_at_once": 137,
    "acknowledgements_are_not_waited_for": 7,
    "another_replica_is_not_asked": 26,
    "commit_is_told_once": 133,
    "elected_before_it_knows_idle_queues": 116,
    "ends_are_forgotten": 7,
    "entries_are_not_synced": 1,
    "epoch_without_writes_refused": 10,
    "failed_cut_forgotten_by_a_restart": 18,
    "failed_sync_counts_as_done": 25,
    "hand_outs_are_forgotten": 19,
    "ids_are_kept_in_memory": 5,
    "ids_are_not_compared": 33,
    "ids_are_taken_over": 41,
    "joins_before_it_has_all": 387,
    "last_registration_wins": 2,
    "levels_are_saved_before_their_deliveries": 144,
    "lost_answer_is_a_refusal": 38,
    "messages_are_revived_before_their_time": 5,
    "name_servers_are_believed_at_once": 19,
    "no_consistent_point_without_an_equal_start": 55,
    "no_epochs_is_a_new_replica": 16,
    "nobody_looks_for_dead_masters": 2,
    "offsets_are_committed_before_check_points_are_safe": 80,
    "offsets_of_a_former_life_stay_at_replicas": 1006,
    "offsets_taken_over_from_a_stale_master": 3,
    "old_name_servers_are_asked_as_new_ones": 5,
    "op_message_before_the_commit": 4445,
    "progress_does_not_rest_while_the_clock_is_behind": 50,
    "progress_is_ahead_of_the_deliveries": 10,
    "progress_is_ahead_of_the_disk": 279,
    "progress_is_ahead_of_the_replicas": 1,
    "proofs_of_new_lives_are_passed_over": 72,
    "proposed_set_ignored": 3,
    "progress_is_ahead_of_what_was_delivered": 12,
    "raised_term_is_not_kept": 105,
    "recovery_ends_at_the_gaps_of_a_filter": 1078,
    "registers_before_its_role_is_known": 5,
    "snapshots_of_the_leader_are_not_loaded": 5,
    "snapshots_without_sets": 5,
    "the_clock_never_goes_back": 1079,
    "the_cursor_stays_when_the_clock_is_set_back": 65,
    "the_queue_goes_on_behind_what_was_never_in_the_wheel": 26,
    "votes_cost_many_syncs": 5,
    "votes_do_not_wait_for_the_disk": 61,
    "what_a_new_master_does_not_know_is_for_no_group": 28,
    "what_a_replica_did_in_a_former_life_counts": 1028,
    "what_is_revived_is_not_noted": 17,
    "who_acts_hears_no_master": 5,
    "who_acts_lacks_topics": 9,
    "what_no_master_took_counts": 1,
}
"""A seed that showed a rare bug, to be played before the others.

It decides nothing: if the suite's stories change, the bug is looked for in all seeds in order.
"""


def played(seeds: range) -> range:
    """Seeds that are played without a planted bug."""
    part = SEEDS_PART if len(seeds) >= MANY_SEEDS else PART
    return seeds if IS_WHOLE else seeds[: -(-len(seeds) // part)]


def is_crash_tried(operation: int, case: int) -> bool:
    """Whether a run of the tests tries a crash at this operation of the disk: each quarter of
    them in another case."""
    return IS_WHOLE or operation % CRASHES == case % CRASHES


def is_bug_played(nodeids: Sequence[str]) -> Iterator[bool]:
    """Whether a run of the tests plays each of these tests: of the planted bugs of a slow suite,
    and of the troubles of disks, every third test of a function, but no bug of LONG_BUGS. With
    IS_REST, the other two thirds and no other test.
    """
    functions: Counter[str] = Counter()
    for nodeid in nodeids:
        function, _, case = nodeid.removesuffix("]").partition("[")
        is_slow = nodeid.startswith(tuple(f"tests/sim/{suite}/" for suite in SLOW_SUITES))
        if IS_WHOLE or not is_slow or not ("_finds" in function or function.endswith(DISKS)):
            yield not IS_REST
            continue
        is_long = case in LONG_BUGS or function.endswith(tuple(LONG_BUGS))
        yield not is_long and (functions[function] % PART == 0) != IS_REST
        functions[function] += not is_long


def finds(run_seed: Callable[[int], Any], seed: int) -> bool:
    """Whether a seed fails. Anything but a finding is an error of the plant."""
    try:
        run_seed(seed)
    except (AssertionError, StoreError):
        return True
    return False


def check_found(
    bug: Plant,
    monkeypatch: pytest.MonkeyPatch,
    run_seed: Callable[[int], Any],
    seeds: range,
    *,
    beyond: bool = False,
) -> None:
    """Check that a planted bug is found in one of the seeds, and that the same seed finds nothing
    without it.

    `beyond`: seeds may fail without the bug, too, as seeds do that take the disks of two of three
    controllers; another seed has to distinguish the bug. A plant that is not used in any of the
    played seeds is an error of the plant.
    """
    patch: Patch | None = None
    for seed in sorted(seeds, key=lambda seed: seed != SHOWN_BY.get(bug.__name__)):
        with monkeypatch.context() as planted:
            patch = Patch(planted, before=patch)
            bug(patch)
            found = finds(run_seed, seed)
        logged.FAILURES.take()  # a checker may raise inside of a handler, which logs it
        patch.check_errors()
        if found and patch.was_used and not (beyond and finds(run_seed, seed)):
            if not beyond:
                run_seed(seed)
            return
    assert patch is not None, "no seeds"
    patch.check()
    pytest.fail(f"not found in {seeds}")

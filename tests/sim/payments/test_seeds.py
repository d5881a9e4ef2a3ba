"""Transactions in simulated groups: seeds that hold, and bugs that they find (I15, F31)."""

from types import SimpleNamespace

import pytest

from tests.sim.payments.suite import run_seed
from tests.sim.planting import Patch, Plant
from tests.sim.share import check_found, played
from tests.sim.transactions.planted import ends_are_forgotten
from turbopump.broker.scheduled.transaction_checks import TransactionChecks
from turbopump.broker.scheduled.transactions import Transactions
from turbopump.broker.traffic.role import Permit

SEEDS = range(20)
THEMED_SEEDS = range(200)
# So that the processes of a parallel run share them.
PARTS = 2


def op_messages_of_a_deposed_master(patch: Patch) -> None:
    """A deposed master goes on with checks, and writes their results, until it is notified of the
    next master.
    """
    step = TransactionChecks.step

    def steps(self: TransactionChecks, now_ms: int) -> bool:
        role, transactions = self._role, self._transactions
        self._role = transactions._role = SimpleNamespace(
            admit_append=Permit, is_master=role.is_master, safe_end=role.safe_end
        )
        try:
            return step(self, now_ms)
        finally:
            self._role = transactions._role = role

    patch.setattr(TransactionChecks, "step", steps)


def what_is_committed_is_checked(patch: Patch) -> None:
    """A new master ignores the ends of earlier masters."""

    def read_ops(self: Transactions) -> bool:
        self.is_ready = True
        return False

    patch.setattr(Transactions, "_read_ops", read_ops)
    patch.setattr(Transactions, "_has_committed_message", lambda self, half: False)


BUGS: dict[Plant, tuple[str, ...]] = {
    op_messages_of_a_deposed_master: ("partition",),
    what_is_committed_is_checked: ("kill",),
    ends_are_forgotten: (),
}
"""Planted bugs, each with the faults that a seed needs to find it."""


@pytest.mark.parametrize("part", range(PARTS))
def test_payments(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: Patch) -> None:
    about = BUGS[bug]
    check_found(bug, monkeypatch, lambda seed: run_seed(seed, about), THEMED_SEEDS, beyond=True)

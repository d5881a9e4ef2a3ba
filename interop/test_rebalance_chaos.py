"""A short chaos evaluation: ours, STICKY, and one node that is killed.

`python -m interop.rebalance_chaos` has the other faults, strategies and RocketMQ beside ours.
"""

from pathlib import Path

import pytest

from interop.rebalance_chaos.faults import Fault
from interop.rebalance_chaos.nodes import Run
from interop.rebalance_chaos.report import broken, outcome, table
from interop.support.groups import Kind

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_a_killed_node_costs_the_others_no_queue(kind: Kind, built: None, work: Path) -> None:
    """The killed node's queues move to the others within 2 s, their own queues stay, and no message
    is lost. RocketMQ has no such strategy: for it only the delivery is judged."""
    is_ours = kind.name == "turbopump"
    strategy = "broker-STICKY" if is_ours else "broker-AVG"
    run = Run(kind, strategy, work / "rebalance-chaos", seed=1)
    history = run.play([Fault("fixed-kill", ("n1",))], print)
    seen = outcome(kind.name, strategy, history)
    text = "\n".join(table([seen]))
    assert seen.verdicts["MQChecker"]["enqueueSuccessCount"] > 0, text
    assert seen.verdicts["MQChecker"]["atLeastOnce"], text
    assert seen.verdicts["OrderChecker"]["isOrdered"], text
    assert len(seen.rebalances) == 2, text
    if is_ours:
        assert not list(broken(seen, [seen])), text

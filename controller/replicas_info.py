"""What 1006 answers: how broker groups stand, in steps.

Owns how many replicas a step tells of. It must never decide who leads: the core does, when the
answer is to be given. Called by the core.
"""

from collections.abc import Callable
from typing import Final

from turbopump.controller import registration
from turbopump.controller.elections import Decision
from turbopump.controller.liveness import Live
from turbopump.controller.state import GroupTables
from turbopump.engine.later import Later
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.command import Command
from turbopump.net.wire.controller import join_replicas_info

Reply = Later[Command] | Steps[Later[Command]]
"""What the core answers a request with."""

REPLICAS_OF_STEP: Final = 256
"""Replicas of a step, in 5 ms; the last group of a step is written whole."""


def in_steps(
    names: list[str],
    now: Callable[[], tuple[GroupTables, Live, int]],
    answer: Callable[[Decision | None], Later[Command]],
) -> Steps[Later[Command]]:
    """The answer about the groups of these names, each as it stands in its step.

    `now` gives the tables, which brokers are alive and the term in which this controller leads;
    `answer` gets None if that has changed, and checks that it surely leads: then it has led in each
    step, too.
    """
    bodies: list[bytes] = []
    some: list[str] = []
    replicas, term = 0, now()[2]
    for name in names:
        tables, live, _term = now()
        group = tables.groups.get(name)
        some.append(name)
        replicas += len(group.replicas) if group is not None else 0
        if replicas >= REPLICAS_OF_STEP:
            bodies.append(registration.sync_state_data(tables, some, live).body)
            some, replicas = [], 0
            yield
    tables, live, now_term = now()
    bodies.append(registration.sync_state_data(tables, some, live).body)
    return answer(Decision(body=join_replicas_info(bodies)) if now_term == term else None)

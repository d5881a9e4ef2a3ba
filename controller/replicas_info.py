"""Answers 1006, the state of broker groups, in steps.

Owns the number of replicas per step. It must never decide whether this controller leads: the core
does, when the answer is due.
"""

from collections.abc import Callable
from typing import Final

from turbopump.controller import registration
from turbopump.controller.elections import Decision
from turbopump.controller.liveness import LivenessAt
from turbopump.controller.state import GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire.command import Command
from turbopump.net.wire.controller import join_replicas_info

Reply = Deferred[Command] | Steps[Deferred[Command]]
"""The core's answer to a request: it is resolved at once or later, or Steps return it."""

REPLICAS_PER_STEP: Final = 256
"""Replicas per step, in 5 ms; the last group of a step is encoded completely."""


def in_steps(
    names: list[str],
    now: Callable[[], tuple[GroupTables, LivenessAt, int]],
    respond: Callable[[Decision | None], Deferred[Command]],
) -> Steps[Deferred[Command]]:
    """Make the answer with the state of the groups of these broker names, each as of its own step.

    `now` returns (tables, liveness, term in which this controller leads, or NO_TERM). `respond` is
    called once, with None if the term has changed between the steps; it checks that this controller
    surely leads, which is then true for each step, too.
    """
    bodies: list[bytes] = []
    some: list[str] = []
    replicas, term = 0, now()[2]
    for name in names:
        tables, liveness, _term = now()
        group = tables.groups.get(name)
        some.append(name)
        replicas += len(group.replicas) if group is not None else 0
        if replicas >= REPLICAS_PER_STEP:
            bodies.append(registration.sync_state_data(tables, some, liveness).body)
            some, replicas = [], 0
            yield
    tables, liveness, now_term = now()
    bodies.append(registration.sync_state_data(tables, some, liveness).body)
    return respond(Decision(body=join_replicas_info(bodies)) if now_term == term else None)

"""Faults of a seed: their kinds, nodes and times (controller.md 22).

Must never know a process: nodes are names here.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KILLS: Final = ("minor-kill", "major-kill", "random-kill", "fixed-kill")
SUSPENDS: Final = ("minor-suspend", "major-suspend", "random-suspend", "fixed-suspend")
LOSSES: Final = ("random-loss",)
NAMES: Final = KILLS + SUSPENDS + LOSSES
FAULT_S: Final = {"kill": 7.0, "suspend": 18.0, "loss": 12.0}
"""Seconds that each fault lasts. A suspended node has to be noticed by its heartbeats, which takes
longest: RocketMQ checks them every 10 s."""
CALM_S: Final = 7.0
"""Seconds after each fault, before the next one."""


@dataclass(frozen=True)
class Fault:
    """A fault of a plan."""

    name: str
    nodes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """kill, suspend or loss."""
        return self.name.rpartition("-")[2]

    @property
    def lasts_s(self) -> float:
        """Seconds until its recovery."""
        return FAULT_S[self.kind]


def plan(
    names: Sequence[str], nodes: Sequence[str], seconds: float, rng: random.Random
) -> list[Fault]:
    """Return the faults of a run, in order: each family's first, others while there is time
    for them. At least one node lives through each."""
    families = [[name for name in names if name in family] for family in (KILLS, SUSPENDS, LOSSES)]
    wanted = [rng.choice(family) for family in families if family]
    faults: list[Fault] = []
    left = seconds
    while True:
        for name in wanted:
            fault = Fault(name, chosen(name, nodes, rng))
            left -= fault.lasts_s + CALM_S
            if left < 0 and faults:
                return faults
            faults.append(fault)
        wanted = [rng.choice(names)]


def chosen(name: str, nodes: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """Choose the nodes of a fault: FaultGenerator's numbers, but never all nodes."""
    count = len(nodes)
    if name.startswith("fixed"):
        return tuple(nodes[:1])
    if name in LOSSES:
        return (rng.choice(nodes),)
    numbers = {
        "minor": count // 2 - 1 if count % 2 == 0 else count // 2,
        "major": count // 2 if count % 2 == 0 else count // 2 + 1,
        "random": rng.randint(1, count - 1),
    }
    number = min(max(1, numbers[name.partition("-")[0]]), count - 1)
    return tuple(sorted(rng.sample(list(nodes), number)))

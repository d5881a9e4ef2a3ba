"""The rooms whose modules are mutated, and the tests that judge their mutants.

Owns both lists. It must never name a test that needs a port or a process of its own: a mutant may
wait for ever.
"""

import re
from pathlib import Path
from typing import Final

# Runs after a module's own tests: the room and its neighbours, then models and simulations.
ROOMS: Final = {
    "engine/log": (
        "tests/unit/engine/log",
        "tests/property/test_store.py tests/property/test_consistent_point.py"
        " tests/sim/test_seeds.py",
    ),
    "broker/pop": (
        "tests/unit/broker/pop tests/unit/broker/handlers/pop",
        "tests/property/pops tests/property/test_fast_lane_acks.py tests/sim/pops",
    ),
    "broker/scheduled": (
        "tests/unit/broker/scheduled",
        "tests/property/test_timer_batches.py tests/property/test_half_marks.py"
        " tests/sim/timers tests/sim/transactions",
    ),
    "controller/raft": (
        "tests/unit/controller/raft tests/unit/controller/test_driver.py tests/scenarios"
        " tests/wire/test_golden_raft.py",
        "tests/sim/raft",
    ),
}


def stages_of(root: Path, module: str) -> list[list[str]]:
    """Tests that judge a mutant of a module, as arguments of pytest: one list for each run.

    The first run has the mirrored file and the files that the docstring of the module names.
    `root`: the top of a checkout. `module`: a path below it.
    """
    path = Path(module)
    mirrored = Path("tests/unit") / path.parent / f"test_{path.name}"
    docstring = (root / module).read_text().split('"""')[1]
    lines = re.search(r"^Tests: (.*)", docstring, re.MULTILINE | re.DOTALL)
    named = re.findall(r"tests/\S+\.py", lines[1]) if lines else []
    own = [str(mirrored)] if (root / mirrored).exists() else []
    first = list(dict.fromkeys(own + named))
    return [first, *(stage.split() for stage in ROOMS[str(path.parent)])]

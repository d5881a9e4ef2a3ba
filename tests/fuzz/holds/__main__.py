"""The longest hold of the loop by one request, for every code of every kind of node.

python -m tests.fuzz.holds                     all of them
python -m tests.fuzz.holds broker 34 18        one kind, some codes
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Hold
from tests.fuzz.holds.walks import LIMIT_MS, WALKS, named

SHARED = generic({"topic": "T"})


def main() -> int:
    """Measure, print a line for each code; 1 if one held the loop for longer than LIMIT_MS."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=[*WALKS, "all"], default="all")
    parser.add_argument("codes", nargs="*", type=int)
    parser.add_argument("--all", action="store_true", help="a line for each request")
    parser.add_argument("--own", action="store_true", help="what is large for that code alone")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    worst = 0.0
    print(f"{'node':11} {'code':>5} {'name':42} {'ms':>7} {'steps':>6} {'waits':>5}  where")
    for kind in WALKS if arguments.kind == "all" else [arguments.kind]:
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            walk = WALKS[kind](Path(folder))
            print(f"# filled in {time.monotonic() - begin:.1f} s", file=sys.stderr)
            for code in sorted(arguments.codes or walk.codes):
                cases = walk.cases(code)
                cases = cases[len(SHARED) :] if arguments.own else cases
                holds = [walk.ask(code, case) for case in cases]
                if not holds:
                    continue
                shown = holds if arguments.all else [longest(holds)]
                for hold in shown:
                    print(
                        f"{kind:11} {code:5} {named(code):42} {hold.ms:7.1f} {hold.steps:6}"
                        f" {sum(one.waits for one in holds):5}  {hold.part}: {hold.case}"
                        f" -> {hold.code}",
                        flush=True,
                    )
                worst = max(worst, longest(holds).ms)
            walk.close()
    print(f"the longest: {worst:.1f} ms, {LIMIT_MS} may be")
    return int(worst > LIMIT_MS)


def longest(holds: list[Hold]) -> Hold:
    """The measurement in which the loop was held longest."""
    return max(holds, key=lambda hold: hold.ms)


sys.exit(main())

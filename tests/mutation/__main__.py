"""Play mutants of a room: `python -m tests.mutation --room engine/log --seed 1 --number 60`.

Owns the run of each mutant of a seeded sample, one after the other, and a file with a line of JSON
for each: the place, the difference, and the number of the first run of tests that failed. A mutant
without such a run has survived. It must never change the checkout: mutants live in a copy.
"""

import argparse
import difflib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant, sample
from tests.mutation.rooms import ROOMS, stages_of

ROOT: Final = Path(__file__).resolve().parents[2]
# A mutant may allocate without an end.
MEMORY_BYTES: Final = 4 << 30
# Wall time beside the time of a processor, on a machine with other work.
WALL_MAX: Final = 6
LEFT_OUT: Final = (".git", ".venv", "build", ".hypothesis", ".mypy_cache", "shared")
# Exit statuses of pytest without a failure.
PASSED: Final = 0
NO_TESTS: Final = 5


def _limits(processor_s: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (processor_s, processor_s))

    return limit


def _play(tree: Path, tests: list[str], limit_s: int) -> str | None:
    """Run tests in the tree: return "failed" or "time" if they notice the fault, else None.

    `limit_s`: seconds of a processor; WALL_MAX times as much of the clock.
    """
    base = tree / "tmp"
    command = [sys.executable, "-m", "pytest", "-x", "-q", f"--basetemp={base}", *tests]
    run = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_limits(limit_s),
    )
    try:
        status = run.wait(WALL_MAX * limit_s)
        return None if status in (PASSED, NO_TESTS) else "time" if status < 0 else "failed"
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        run.wait()
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(tree / ".hypothesis", ignore_errors=True)


def _judge(tree: Path, mutant: Mutant, runs: int, limit_s: int) -> dict[str, object]:
    """Return the line of a mutant. Afterwards the module has its old text and time, so that its
    bytecode counts."""
    path = tree / mutant.module
    old, times, began = path.read_text(), path.stat(), time.monotonic()
    new = mutant.source(tree)
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[3:]
    killed, why = None, None
    path.write_text(new)
    try:
        for number, tests in enumerate(stages_of(tree, mutant.module)[:runs], 1):
            if tests and (why := _play(tree, tests, limit_s)):
                killed = number
                break
    finally:
        path.write_text(old)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    took_s = round(time.monotonic() - began, 1)
    judged = {"difference": lines, "killed_by": killed, "why": why, "took_s": took_s}
    return {**mutant._asdict(), **judged}


def _check(tree: Path, mutants: list[Mutant], runs: int, limit_s: int) -> None:
    """End the process if a test fails without a mutant: all mutants would seem to be killed."""
    modules = sorted({mutant.module for mutant in mutants})
    runs_of_all = zip(*(stages_of(tree, module)[:runs] for module in modules), strict=True)
    for run in runs_of_all:
        tests = sorted({test for named in run for test in named})
        if _play(tree, tests, limit_s * 4):
            sys.exit(f"tests fail, or do not end, without a mutant: {' '.join(tests)}")


def _lines(path: Path) -> dict[Mutant, dict[str, object]]:
    """Read the lines of earlier runs; no lines if there is no such file."""
    texts = path.read_text().splitlines() if path.exists() else []
    lines = [json.loads(text) for text in texts]
    return {Mutant(*(line[field] for field in Mutant._fields)): line for line in lines}


def main() -> None:
    """Play each mutant of the sample without a line in the file, with --again survivors too."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--room", choices=ROOMS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3, help="1: the tests of the module alone")
    parser.add_argument("--limit-s", type=int, default=200, help="of a processor, for one run")
    parser.add_argument("--again", action="store_true", help="play survivors again")
    parser.add_argument("--out", type=Path, default=Path("build/mutation.jsonl"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = _lines(options.out)
    done = {one for one, line in lines.items() if line["killed_by"] or not options.again}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        drawn = sample(ROOT, options.room, options.seed, options.number)
        left = [mutant for mutant in drawn if mutant not in done]
        _check(tree, left, options.runs, options.limit_s)
        for mutant in left:
            line = _judge(tree, mutant, options.runs, options.limit_s)
            with options.out.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(mutant, line["killed_by"] or "SURVIVED", flush=True)


if __name__ == "__main__":
    main()

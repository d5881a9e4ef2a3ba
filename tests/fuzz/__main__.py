"""Coverage-guided fuzzing of the parsers, native and Python, one target after the other.

    python -m tests.fuzz --minutes 60            all targets, an hour in total
    python -m tests.fuzz --minutes 2 record      one target

Native targets run under libFuzzer with the address and undefined-behaviour sanitizers, Python
targets under atheris. Seeds come from the golden data; the corpus of a run stays in build/fuzz and
the next run continues with it. An input that breaks a target is kept in tests/fuzz/findings, where
a test replays it in every run.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.fuzz import native
from tests.fuzz.seeds import seeds_of, words_of
from tests.fuzz.targets import TARGETS

BUILT: Final = native.ROOT / "build" / "fuzz"
FINDINGS: Final = Path(__file__).resolve().parent / "findings"
ATHERIS: Final = "atheris>=3.0"

LENGTHS: Final = {"index": 24_000, "frame": 512, "crc": 512, "queue": 1024}
LENGTH: Final = 8192
"""Bytes of an input: a few records, frames or beans; and more than the 4300 digits of an int."""

INPUT_SECONDS: Final = 30
"""Wall-clock time of an input, on a busy machine at the lowest priority."""

MEMORY_MB: Final = 2048
SUMMARY: Final = "Coverage-guided fuzzing of the parsers, native and Python."
RESTARTS: Final = 5
"""Number of findings after which the rest of a target's time is given up."""


@dataclass(slots=True)
class Outcome:
    """Results of the runs of a target."""

    name: str
    executions: int = 0
    edges: int = 0
    corpus: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)


def check_tools(names: list[str]) -> None:
    """Install the Python fuzzer where it is needed; raises BuildFailed if a tool is missing."""
    if any(name in native.NAMES for name in names) and shutil.which("clang") is None:
        raise native.BuildFailed(
            "clang is not there: apt-get install clang libclang-rt-14-dev (or leave out the "
            f"native targets {', '.join(native.NAMES)})"
        )
    if any(name in TARGETS for name in names) and find_spec("atheris") is None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", ATHERIS]
        if subprocess.run(command).returncode != 0:
            raise native.BuildFailed(f"atheris is not there and could not be installed: {ATHERIS}")


def fuzz(name: str, seconds: float) -> Outcome:
    """Run one target for that long, going on after findings; each is kept."""
    outcome = Outcome(name)
    corpus, seeds, artifacts = (BUILT / kind / name for kind in ("corpus", "seeds", "artifacts"))
    for folder in (corpus, seeds, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds_of(name):
        (seeds / hashlib.sha1(seed).hexdigest()[:16]).write_bytes(seed)
    if name in native.NAMES:
        command = [str(native.build(name, BUILT / "bin"))]
    else:
        command = [sys.executable, "-m", "tests.fuzz.worker", name]
    started = time.monotonic()
    places = [corpus, seeds, FINDINGS / name]
    for _ in range(RESTARTS):
        left = seconds - (time.monotonic() - started)
        if left < 1:
            break
        run_once(command, left, [place for place in places if place.is_dir()], outcome)
        places = [corpus, seeds]  # a finding in the corpus would end the next process at once
    outcome.seconds = time.monotonic() - started
    outcome.corpus = sum(1 for _ in corpus.iterdir())
    return outcome


def run_once(command: list[str], seconds: float, inputs: list[Path], outcome: Outcome) -> None:
    """Run one process of a fuzzer until its time is up or it finds something."""
    name = outcome.name
    artifacts = BUILT / "artifacts" / name
    arguments = [
        f"-max_total_time={int(seconds)}",
        f"-max_len={LENGTHS.get(name, LENGTH)}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-print_final_stats=1",
        "-use_value_profile=1",
        f"-artifact_prefix={artifacts}/",
        *map(str, inputs),
    ]
    if words := words_of(name):
        dictionary = BUILT / f"{name}.dict"
        dictionary.write_text("".join(f'"{word}"\n' for word in words))
        arguments.append(f"-dict={dictionary}")
    log = BUILT / f"{name}.log"
    with log.open("wb") as output:
        environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}
        done = subprocess.run(
            ["nice", "-n", "19", *command, *arguments],
            cwd=native.ROOT,
            stdout=output,
            stderr=output,
            env=environment,
        )
    text = log.read_text(errors="replace")
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)
    steps = re.findall(r"^#(\d+)\s", text, re.MULTILINE)
    outcome.executions += int((executed or steps or ["0"])[-1])
    outcome.edges = max([outcome.edges, *map(int, re.findall(r" cov: (\d+)", text))])
    found = sorted(path for path in artifacts.iterdir() if not path.name.startswith("slow-unit"))
    for path in found:
        kept = keep(name, path)
        if kept not in outcome.findings:
            outcome.findings.append(kept)
    if done.returncode != 0:
        print(f"-- {name} stopped:\n{excerpt(text)}", flush=True)
        if not found:
            outcome.findings.append(f"no input kept, see {log}")


def keep(name: str, artifact: Path) -> str:
    """Move an input that broke a target to the findings; its name there."""
    kind = artifact.name.split("-")[0]
    digest = hashlib.sha1(artifact.read_bytes()).hexdigest()[:12]
    kept = FINDINGS / name / f"{kind}-{digest}.bin"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(artifact, kept)
    return str(kept.relative_to(native.ROOT))


def excerpt(text: str) -> str:
    """Lines of a log that show the failure."""
    lines = text.splitlines()
    first = next(
        (
            number
            for number, line in enumerate(lines)
            if re.search(r"does not hold|runtime error|ERROR: |Uncaught Python exception", line)
        ),
        max(0, len(lines) - 15),
    )
    return "\n".join(line[:300] for line in lines[first : first + 25])


def main() -> int:
    """Exit code 1 if something was found, 2 if a tool is missing."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=SUMMARY)
    parser.add_argument("--minutes", type=float, default=10, help="of all targets together")
    parser.add_argument("targets", nargs="*", help="by default all", metavar="TARGET")
    options = parser.parse_args()
    every = [*native.NAMES, *TARGETS]
    names = options.targets or every
    if unknown := [name for name in names if name not in every]:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(every)}")
    try:
        check_tools(names)
        print(f"{'target':14}{'executions':>12}{'edges':>7}{'corpus':>8}{'seconds':>9}  findings")
        outcomes = []
        for name in names:
            outcome = fuzz(name, options.minutes * 60 / len(names))
            outcomes.append(outcome)
            print(
                f"{name:14}{outcome.executions:12,}{outcome.edges:7}{outcome.corpus:8}"
                f"{outcome.seconds:9.0f}  {', '.join(outcome.findings) or 'none'}",
                flush=True,
            )
    except native.BuildFailed as error:
        print(error, file=sys.stderr)
        return 2
    executions = sum(outcome.executions for outcome in outcomes)
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    count = sum(len(outcome.findings) for outcome in outcomes)
    print(f"{len(names)} targets, {executions:,} executions, {minutes:.0f} min, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())

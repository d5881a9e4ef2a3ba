"""The I/O threads under the thread sanitizer, driven by a loop in C (`play.c`) over socket pairs.

    python -m tests.tsan [--seed N] [--scale S] [--planted [NAME ...]]

Builds csrc's part twice, from a copy with small rings and windows: with the sanitizer, and
optimized without it, because a lost wake-up needs threads that meet in a few nanoseconds.
`--planted` plays faults of `planted.py`, one at a time, and prints a row for each: each must be
found.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.tsan.planted import FAULTS, Fault

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILT = ROOT / "build" / "tsan"
SOURCES: Final = ("byte_ring.c", "byte_ring.h", "io_loop.c", "io_thread.c", "io_thread.h")
SMALL: Final = {
    "#define IO_READ_MAX (128 << 10)": "#define IO_READ_MAX (8 << 10)",
    "#define IO_WRITE_MAX (256 << 10)": "#define IO_WRITE_MAX (12 << 10)",
    "#define IO_WINDOW (256 << 10)": "#define IO_WINDOW (16 << 10)",
    "#define IO_WINDOW_SHORT 4096": "#define IO_WINDOW_SHORT 1024",
    "#define IO_RING_ROOM (2 << 20)": "#define IO_RING_ROOM (32 << 10)",
    "#define WRITE_TURN (1 << 20)": "#define WRITE_TURN (16 << 10)",
}
"""Limits of the copy: full rings and windows are reached in each round."""
FLAGS: Final = {"tsan": ["-O1", "-fsanitize=thread", "-Wno-tsan"], "fast": ["-O2"]}
"""The sanitizer treats fences as no order between accesses: csrc needs them for no data, only to
find out whether the other side sleeps."""
SECONDS: Final = {"tsan": 12.0, "fast": 5.0}
LIMIT_S: Final = 15.0
PLANTED_LIMIT_S: Final = 4.0
PLANTED_SECONDS: Final = 25.0
FAULT_EXIT: Final = 3
"""Exit code of `play.c` and of the sanitizer after a finding."""


def replace_once(text: str, before: str, after: str) -> str:
    assert text.count(before) == 1, f"not once in the source: {before!r}"
    return text.replace(before, after)


def build(name: str, kind: str, fault: Fault | None = None) -> Path:
    """Compile `play.c` with a copy of csrc's part, small and with the fault; return the program."""
    folder = BUILT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in SOURCES:
        text = (ROOT / "csrc" / file).read_text()
        for before, after in SMALL.items():
            if before in text:
                text = replace_once(text, before, after)
        if fault is not None and fault.file == file:
            text = replace_once(text, fault.before, fault.after)
        (folder / file).write_text(text)
    units = [*folder.glob("*.c"), *HERE.glob("*.c")]
    program = folder / "play"
    compiler = ["gcc", "-std=c11", "-g", "-Wall", "-Wextra", *FLAGS[kind]]
    paths = [f"-I{folder}", f"-I{HERE}", "-o", program, *units, "-lpthread"]
    subprocess.run([*compiler, "-w" if fault else "-Werror", *paths], check=True)
    return program


def play(program: Path, seed: int, seconds: float, limit_s: float) -> tuple[int, str]:
    """Run a program; return its exit code and output. Without randomized addresses, which the
    sanitizer's fixed map of the memory excludes on some kernels."""
    command = [str(program), str(seed), str(seconds), str(limit_s)]
    if shutil.which("setarch"):
        command = ["setarch", "-R", *command]
    options = f"exitcode={FAULT_EXIT}:halt_on_error=1:history_size=4"
    done = subprocess.run(
        command,
        env={"TSAN_OPTIONS": options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds + 20 * limit_s,
    )
    return done.returncode, done.stdout


def finding(code: int, output: str) -> str:
    """Return a finding in a few words, or an empty text."""
    for line in output.splitlines():
        if line.startswith("FOUND: "):
            return line.removeprefix("FOUND: ")
        if "WARNING: ThreadSanitizer: " in line:
            return "sanitizer: " + line.split("ThreadSanitizer: ")[1].split(" (")[0]
        if "Assertion" in line:
            return "assert: " + line.split("Assertion")[1].strip()
    return f"exit code {code}" if code else ""


def play_clean(seed: int, scale: float) -> int:
    """Play both builds without a fault; return the exit code."""
    for kind in FLAGS:
        program = build(kind, kind)
        code, output = play(program, seed, SECONDS[kind] * scale, LIMIT_S)
        print(f"{kind}: {output.strip()}", flush=True)
        if code:
            print(f"replay: {program} {seed} {SECONDS[kind] * scale} {LIMIT_S}")
            return code
    return 0


def play_fault(name: str, seed: int) -> str:
    """Play a fault with up to two seeds; return its finding, empty: not found."""
    fault = FAULTS[name]
    program = build(f"{fault.by}-{name}", fault.by, fault)
    for number in range(2):
        found = finding(*play(program, seed + number, PLANTED_SECONDS, PLANTED_LIMIT_S))
        if found:
            return found
    return ""


def play_planted(names: list[str], seed: int) -> int:
    """Play faults, print a row for each; return 1 if one was not found."""
    missed = 0
    for name in names or FAULTS:
        found = play_fault(name, seed)
        print(f"| {FAULTS[name].text} | {found or '**not found**'} |", flush=True)
        missed += not found
    return int(missed > 0)


def main() -> int:
    """Play, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.tsan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the time")
    parser.add_argument("--planted", nargs="*", metavar="NAME", help="faults to plant; none: all")
    options = parser.parse_args()
    if options.planted is not None:
        return play_planted(options.planted, options.seed)
    return play_clean(options.seed, options.scale)


if __name__ == "__main__":
    sys.exit(main())

"""Building the native fuzz targets: for libFuzzer by clang, and for a replay by the C compiler.

Both with the address and undefined-behaviour sanitizers. Called by the runner and the replay test.
"""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SOURCES: Final = Path(__file__).resolve().parent / "native"
NAMES: Final = tuple(
    sorted(path.stem for path in SOURCES.glob("*.c") if path.stem not in ("replay",))
)
FLAGS: Final = (
    "-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer", f"-I{ROOT / 'csrc'}", f"-I{SOURCES}",
)  # fmt: skip


class BuildFailed(RuntimeError):
    """A compiler that is missing or refuses; the message is for the person at the terminal."""


def build(name: str, folder: Path, *, fuzzer: bool) -> Path:
    """The program of a target in `folder`: a fuzzer, or one that replays files."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    sources = [*sorted((ROOT / "csrc").glob("*.c")), SOURCES / f"{name}.c"]
    if fuzzer:
        command = ["clang", "-fsanitize=fuzzer,address,undefined"]
    else:
        command = ["cc", "-fsanitize=address,undefined"]
        sources.append(SOURCES / "replay.c")
    try:
        done = subprocess.run(
            [*command, *FLAGS, *map(str, sources), "-o", str(program)],
            capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        packages = "clang and libclang-rt-14-dev (apt-get install)" if fuzzer else "a C compiler"
        raise BuildFailed(f"{command[0]} is not there: install {packages}") from None
    if done.returncode != 0:
        hint = ""
        if "libclang_rt" in done.stderr:
            hint = "clang has no fuzzer run time: apt-get install libclang-rt-14-dev\n"
        raise BuildFailed(f"{hint}{name}.c was not built:\n{done.stderr.strip()}")
    return program

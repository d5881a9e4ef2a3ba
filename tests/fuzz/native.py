"""Build of the native fuzz targets: for libFuzzer by clang, and for a replay by the C compiler.

Both with the address and undefined-behaviour sanitizers.
"""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SOURCES: Final = Path(__file__).resolve().parent / "native"
BUILD_S: Final = 1_800
"""Timeout of a command of the compiler: it takes minutes on a busy machine."""
NAMES: Final = tuple(
    sorted(path.stem for path in SOURCES.glob("*.c") if path.stem not in ("replay",))
)
FLAGS: Final = (
    "-g",
    "-O1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    f"-I{ROOT / 'csrc'}",
    f"-I{ROOT / 'build' / 'generated'}",
    f"-I{SOURCES}",
)


class BuildFailed(RuntimeError):
    """A compiler that is missing or refuses; the message is for the person at the terminal."""


def build(name: str, folder: Path) -> Path:
    """The fuzzer of a target in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    sources = [*_kernels(), SOURCES / f"{name}.c"]
    _compile(name, True, [*map(str, sources), "-o", str(program)], folder)
    return program


def build_replays(folder: Path) -> dict[str, Path]:
    """Build for each target a program that replays files; the kernels are compiled only once."""
    objects = [str(folder / f"{path.stem}.o") for path in _kernels()]
    _compile("csrc", False, ["-c", *map(str, _kernels())], folder)
    programs = {name: folder / name for name in NAMES}
    for name, program in programs.items():
        own = [str(SOURCES / f"{name}.c"), str(SOURCES / "replay.c")]
        _compile(name, False, [*own, *objects, "-o", str(program)], folder)
    return programs


def _kernels() -> list[Path]:
    return sorted((ROOT / "csrc").glob("*.c"))


def _compile(name: str, fuzzer: bool, arguments: list[str], folder: Path) -> None:
    """Run the compiler in a folder. Raises BuildFailed."""
    if fuzzer:
        command = ["clang", "-fsanitize=fuzzer,address,undefined"]
    else:
        command = ["cc", "-fsanitize=address,undefined"]
    try:
        done = subprocess.run(
            [*command, *FLAGS, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{name} was not built within {BUILD_S} s") from None
    except FileNotFoundError:
        packages = "clang and libclang-rt-14-dev (apt-get install)" if fuzzer else "a C compiler"
        raise BuildFailed(f"{command[0]} is not there: install {packages}") from None
    if done.returncode != 0:
        hint = ""
        if "libclang_rt" in done.stderr:
            hint = "clang has no fuzzer run time: apt-get install libclang-rt-14-dev\n"
        raise BuildFailed(f"{hint}{name} was not built:\n{done.stderr.strip()}")

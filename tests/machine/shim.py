"""A machine that is slow, fails or lies, around a real process: a preloaded library, its rules.

Owns `shim.c`, built once a session, and the file of rules that a process with it follows. It must
never be part of the product.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
ANY = "-"
"""A rule for every file."""


def build(folder: Path) -> Path:
    """The library, compiled into a folder; made once. Raises CalledProcessError."""
    made = folder / "turbopump-shim.so"
    if not made.exists():
        compiler = shutil.which("cc") or "gcc"
        unfinished = folder / f"{made.name}.{os.getpid()}"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", unfinished, SOURCE, "-ldl"],
            check=True,
            capture_output=True,
        )
        unfinished.replace(made)
    return made


@dataclass(slots=True)
class Machine:
    """Disk and clock of a process; healthy at first."""

    library: Path
    rules: Path
    """The file of rules; one for each process that is to have its own troubles."""

    def environment(self) -> Mapping[str, str]:
        """Additional environment variables for the process."""
        return {"LD_PRELOAD": str(self.library), "TURBOPUMP_SHIM": str(self.rules)}

    def slow(self, ms: int, path: str = ANY) -> None:
        """Let each sync of files with `path` in their names take `ms` longer."""
        self._write(f"sync slow {ms} {path}")

    def fail(self, path: str = ANY) -> None:
        """Let each sync of such files fail with EIO."""
        self._write(f"sync fail {path}")

    def hang(self, path: str = ANY) -> None:
        """No sync of them returns until other rules are given."""
        self._write(f"sync hang {path}")

    @property
    def hangs(self) -> bool:
        """Whether a sync waits, or has waited, by the rule that was given last."""
        return self._hung.exists()

    def shift_clock(self, ms: int) -> None:
        """Set the wall clock ahead by `ms`; negative: back."""
        self._write(f"clock {ms}")

    def heal(self) -> None:
        """End all trouble."""
        self._write("")

    @property
    def _hung(self) -> Path:
        return self.rules.with_name(f"{self.rules.name}.hung")

    def _write(self, text: str) -> None:
        self._hung.unlink(missing_ok=True)
        unfinished = self.rules.with_name(f"{self.rules.name}.new")
        unfinished.write_text(f"{text}\n")
        unfinished.replace(self.rules)

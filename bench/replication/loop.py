"""The minimal cost of replication: a file sent by a bare loop in C.

Owns the compiled program of bench/sendfile.c and its files.
"""

import json
import os
import subprocess
from pathlib import Path

from bench.replication.pairs import Copied

SOURCE = Path(__file__).resolve().parents[1] / "sendfile.c"
PIECE = 262_144
"""Bytes per sendfile, as Turbopump sends: the default of haTransferBatchSize."""


def compile_program(folder: Path) -> Path:
    """Compile bench/sendfile.c into the folder; return the program."""
    program = folder / "sendfile"
    command = ["gcc", "-O3", "-std=gnu11", "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True)
    return program


def measure_bare(program: Path, folder: Path, size: int, replicas: int) -> Copied:
    """Send a file of `size` bytes to `replicas` receivers with the bare loop, and measure it."""
    source, target = folder / "source", folder / "target"
    try:
        with source.open("wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        command = [str(program), str(source), str(PIECE), str(replicas), str(target)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        for path in folder.glob("target.*"):
            path.unlink()
        source.unlink(missing_ok=True)
    found = json.loads(done.stdout)
    sent = found["bytes"] * replicas / 1e9
    return Copied(
        found["bytes"] / found["seconds"],
        found["sender_cpu_s"] / sent,
        found["receivers_cpu_s"] / sent,
    )

"""The bytes of real replication connections, with the truth about each frame.

tests/golden/ha/RUN: connectionNN.DIRECTION.bin is one direction of a connection, steps.jsonl its
frames in the order in which they crossed the wire.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

HA = Path(__file__).resolve().parent.parent / "golden" / "ha"
SWITCHING = ("controller-json", "controller-mixed")
CONNECTIONS = [(run, number) for run in SWITCHING for number in range(3)]
PLAIN_CONNECTIONS = [0, 1]


def _unpacked(path: Path) -> bytes:
    return zstandard.decompress(path.read_bytes(), max_output_size=1 << 24)


@cache
def stream(run: str, connection: int, direction: str) -> bytes:
    return _unpacked(HA / run / f"connection{connection:02d}.{direction}.bin.zst")


@cache
def steps(run: str, connection: int) -> list[dict[str, Any]]:
    """The frames of a connection, without a frame that was cut when the master died."""
    lines = _unpacked(HA / run / "steps.jsonl.zst").decode().splitlines()
    found = [json.loads(line) for line in lines]
    return [s for s in found if s["connection"] == connection and not s.get("cut")]

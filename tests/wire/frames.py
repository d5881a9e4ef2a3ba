"""Frames that a real RocketMQ 5.5.0 and its clients sent, with the truth about each.

The captures lie in tests/golden/frames: NAME.bin is frame after frame, NAME.jsonl one line a frame.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

FRAMES = Path(__file__).resolve().parent.parent / "golden" / "frames"
CAPTURES = sorted(path.name.removesuffix(".bin.zst") for path in FRAMES.glob("*.bin.zst"))


@dataclass(frozen=True)
class Golden:
    """A frame; `truth` is its line, with the values that RocketMQ's own classes read from it."""

    capture: str
    truth: dict[str, Any]
    frame: bytes

    def __str__(self) -> str:
        return f"{self.capture} frame {self.truth['frame']} {self.truth['name']}"

    @property
    def body(self) -> bytes:
        size = self.truth["bodyLength"]
        return self.frame[len(self.frame) - size :]

    @property
    def is_request(self) -> bool:
        return self.truth["kind"] != "response"


def unpacked(name: str) -> bytes:
    return zstandard.decompress((FRAMES / name).read_bytes(), max_output_size=1 << 24)


@cache
def golden_frames(capture: str) -> tuple[Golden, ...]:
    data = unpacked(f"{capture}.bin.zst")
    found = []
    for line in unpacked(f"{capture}.jsonl.zst").decode().splitlines():
        truth = json.loads(line)
        begin = truth["at"]
        found.append(Golden(capture, truth, data[begin : begin + truth["length"]]))
    return tuple(found)

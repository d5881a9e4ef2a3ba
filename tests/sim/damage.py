"""Damage between two lives of a store to files that can be derived from its log.

The next start must repair all of it: `check_store` then finds nothing. Damage that no start can
find (a flipped bit in a queue unit, which has no checksum) and damage of the log itself have tests
of their own, in tests/unit/engine/log/test_damage.py.
"""

import random
from collections.abc import Callable

from tests.sim.disk import SimDisk

ROOT = "/store"
CHECKPOINT = f"{ROOT}/checkpoint"


class Damage:
    """Kinds of damage, and an old copy of the checkpoint to bring back (a stale backup)."""

    def __init__(self, disk: SimDisk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng
        self._old_checkpoint = b""

    def remember(self) -> None:
        """Copy the checkpoint, to bring it back some day."""
        if not self._old_checkpoint or self._rng.random() < 0.3:
            self._old_checkpoint = bytes(self._disk.content(CHECKPOINT))

    def forget(self) -> None:
        """Drop the saved old checkpoint: the log was cut, and it would cover removed bytes."""
        self._old_checkpoint = b""

    def do(self, *, index_too: bool, queues_too: bool) -> str:
        """Damage a file durably; return a description of the damage, empty if there was nothing to
        damage.
        """
        disk = self._disk
        disk.settle()
        kinds: list[Callable[[], str]] = [
            self._lose_checkpoint,
            self._zero_checkpoint,
            self._flip_checkpoint,
            self._stale_checkpoint,
        ]
        if index_too:
            kinds += [self._lose_index_file, self._zero_index_file]
        if queues_too:
            kinds += [self._lose_queue_file, self._lose_queue, self._lose_queues]
        done = kinds[int(self._rng.random() * len(kinds))]()
        disk.settle()
        return done

    def _one_of(self, folder: str) -> str:
        paths = self._disk.paths(f"{ROOT}/{folder}/")
        return paths[int(self._rng.random() * len(paths))] if paths else ""

    def _lose(self, paths: list[str]) -> str:
        for path in paths:
            self._disk.remove(path)
        return f"lost {', '.join(paths)}" if paths else ""

    def _lose_queue_file(self) -> str:
        path = self._one_of("consumequeue")
        return self._lose([path] if path else [])

    def _lose_queue(self) -> str:
        path = self._one_of("consumequeue")
        return self._lose(self._disk.paths(path.rpartition("/")[0] + "/")) if path else ""

    def _lose_queues(self) -> str:
        return self._lose(self._disk.paths(f"{ROOT}/consumequeue/"))

    def _lose_index_file(self) -> str:
        path = self._one_of("index")
        return self._lose([path] if path else [])

    def _zero_index_file(self) -> str:
        path = self._one_of("index")
        if path:
            content = self._disk.content(path)
            content[:] = bytes(len(content))
        return f"zeroed {path}" if path else ""

    def _lose_checkpoint(self) -> str:
        return self._lose([path for path in self._disk.paths(ROOT) if path == CHECKPOINT])

    def _zero_checkpoint(self) -> str:
        return self._set_checkpoint(bytes(4096))

    def _flip_checkpoint(self) -> str:
        if not self._disk.exists(CHECKPOINT):
            return ""
        content = self._disk.content(CHECKPOINT)
        used = [at for at, byte in enumerate(content) if byte]
        if not used:
            return ""
        at = self._rng.choice(used)
        content[at] ^= 1 << self._rng.randrange(8)
        return f"flipped byte {at} of {CHECKPOINT}"

    def _stale_checkpoint(self) -> str:
        return self._set_checkpoint(self._old_checkpoint) if self._old_checkpoint else ""

    def _set_checkpoint(self, data: bytes) -> str:
        if not self._disk.exists(CHECKPOINT):
            return ""
        self._disk.content(CHECKPOINT)[:] = data
        return f"{CHECKPOINT} has other contents"

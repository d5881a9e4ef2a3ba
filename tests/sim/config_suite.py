"""A seed of the config suite (R45): files of `config/` replaced, changes appended to them, torn,
damaged, read again.

A file's value is a number that grows with each save or change, and the numbers of the changes since
a save, of which no appended one may be missing. After any crash a load gives the last value whose
save, append or load returned, or a newer value that was being written; after damage of the file
itself, at least the value of its backup. No crash ever leaves a file that cannot be read.
"""

import json
import random
from dataclasses import dataclass, field

from tests.sim.disk import PowerCut, SimDisk
from turbopump.engine.disk.config_changes import SUFFIX, encode_change
from turbopump.engine.disk.config_files import ConfigFiles

FOLDER = "/broker/config"
NAMES = ("topics.json", "consumerOffset.json")
LIVES = 6
STEPS_MAX = 8
# Ranges of operations until the end of the process: within one save, after many.
OPERATIONS = (12, 60)
# The others only read before they end.
ACTIVE = 0.6
# How often a change is appended where it can be.
APPENDING = 0.7
PADDINGS = (0, 10, 5000, 20_000)


@dataclass(slots=True)
class Model:
    """Expected values: `acked` counts completed saves; a load gives at least `last` and at most
    `tried`; `changes` were appended, some of them before the last save.
    """

    acked: int = 0
    ends: int = 0
    last: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    changes: dict[str, set[int]] = field(default_factory=dict)


class Run:
    """Run of a seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.disk = SimDisk(rng, lambda: 0)
        self.disk.torn_pages = rng.random() < 0.5
        self.disk.ordered = rng.random() < 0.3
        self.model = Model()
        self.damaged: set[str] = set()
        """Files that were damaged and not written since."""

    def play(self) -> Model:
        """Play all lives; an AssertionError or StoreError is a finding."""
        for _ in range(LIVES):
            self.disk.kill = self.rng.random() < 0.5
            try:
                self._life()
            except PowerCut:
                self.model.ends += 1
            self.disk.restart()
            if self.rng.random() < 0.3:
                self._damage()
        self._check(ConfigFiles(self.disk, FOLDER))
        return self.model

    def _life(self) -> None:
        rng = self.rng
        if rng.random() < 0.2:
            self.disk.cut_after = rng.randrange(4)
        files = ConfigFiles(self.disk, FOLDER)
        self._check(files)
        if rng.random() < 0.8:
            self.disk.cut_after = rng.randrange(rng.choice(OPERATIONS))
        for _ in range(rng.randrange(STEPS_MAX) if rng.random() < ACTIVE else 0):
            self.disk.full = rng.random() < 0.1
            self.disk.fail_syncs = int(rng.random() < 0.05)
            self._save(files, NAMES[rng.randrange(len(NAMES))])
            self.disk.full, self.disk.fail_syncs = False, 0
            if rng.random() < 0.3:
                self.disk.writeback()
            if rng.random() < 0.3:
                self._check(files)
        if rng.random() < 0.8:
            self.disk.end()
            raise PowerCut

    def _save(self, files: ConfigFiles, name: str) -> None:
        model = self.model
        number = model.tried[name] = model.tried.get(name, 0) + 1
        padding = "x" * PADDINGS[self.rng.randrange(len(PADDINGS))]
        try:
            if files.may_append(name, len(padding)) and self.rng.random() < APPENDING:
                rows = [b'"%d":{"padding":"%s"}' % (number, padding.encode())]
                files.append(name, [encode_change({"number": number}, {"changes": rows}, {})])
                model.changes.setdefault(name, set()).add(number)
            else:
                files.save(name, {"number": number, "saved": number, "padding": padding})
                self.damaged.discard(f"{FOLDER}/{name}")
        except OSError:
            return
        model.acked += 1
        model.last[name] = number

    def _check(self, files: ConfigFiles) -> None:
        model = self.model
        for name in NAMES:
            value = files.load(name)
            number = 0 if value is None else value["number"]
            changes = set(map(int, (value or {}).get("changes", ())))
            saved = (value or {}).get("saved", 0)
            known = {one for one in model.changes.get(name, ()) if saved < one <= number}
            missing = known - changes
            assert not missing, f"{name}: {number} without the changes {sorted(missing)}"
            assert number == max(changes, default=saved), f"{name}: {number}, {sorted(changes)}"
            last, tried = model.last.get(name, 0), model.tried.get(name, 0)
            assert last <= number <= tried, f"{name}: {number}, not {last} to {tried}"
            # A value that was read is acted upon: no power cut may take it back.
            model.changes[name] = changes
            model.last[name] = number

    def _damage_changes(self, name: str, path: str) -> None:
        """Corrupt or remove the appended changes of a file: only the changes before the damage
        count.
        """
        disk, rng = self.disk, self.rng
        disk.settle()
        content = disk.content(path + SUFFIX)
        self.model.last[name] = self._number(path) if disk.exists(path) else 0
        if rng.random() < 0.3:
            disk.remove(path + SUFFIX)
        elif content:
            content[rng.randrange(len(content))] ^= 1 + rng.randrange(255)
        disk.settle()

    def _number(self, path: str) -> int:
        """Number in a file that this suite did not damage."""
        try:
            return int(json.loads(self.disk.content(path))["number"])
        except ValueError as error:
            raise AssertionError(f"{path} cannot be read: {error}") from error

    def _damage(self) -> None:
        """Damage one file: empty, zero, truncate, overwrite or remove it."""
        disk, rng = self.disk, self.rng
        name = NAMES[rng.randrange(len(NAMES))]
        path = f"{FOLDER}/{name}"
        if disk.exists(path + SUFFIX) and path not in self.damaged and rng.random() < 0.5:
            self._damage_changes(name, path)
            return
        if not disk.exists(path) or not disk.exists(path + ".bak"):
            return
        disk.settle()
        self.damaged.add(path)
        backup = self._number(path + ".bak")
        content = disk.content(path)
        kind = rng.randrange(5)
        if kind == 0:
            disk.resize(path, 0)
        elif kind == 1:
            content[:] = bytes(len(content))
        elif kind == 2:
            disk.resize(path, rng.randrange(len(content) + 1))
        elif kind == 3:
            at = rng.randrange(len(content) + 1)
            content[at:] = bytes(len(content) - at)
        else:
            disk.remove(path)
        disk.settle()
        self.model.last[name] = backup


def run_seed(seed: int) -> Model:
    """Play one seed of this suite."""
    return Run(seed).play()

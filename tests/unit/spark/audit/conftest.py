"""A group of three real stores with a history: epochs, switches, a ledger of received messages."""

import shutil
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from tests.shortcuts.verdicts import find_verdict
from tests.waiting import record_epochs

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage
from turbopump.spark.audit.job import Audit, AuditOptions, run
from turbopump.spark.audit.ledger import Claim, Elected, Entry, digest_of, encode
from turbopump.spark.audit.verdicts import Verdict

NOW_MS = 1_700_000_000_000
FILE_SIZE = 16 * 1024
BLOCK = 4096
NAMES = ("a", "b", "c")


class Group:
    """See the module. Stores are open until `stop`."""

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        self.number = 0
        self.epoch = 0
        self.stores: dict[str, Store] = {}
        self.logs: dict[str, Any] = {}
        for name in names:
            self.open(name)
        self.leads = names[0]

    def root(self, name: str) -> Path:
        """The folder of a store."""
        return self.folder / name

    def open(self, name: str) -> None:
        """Open a store for the first time, or again."""
        config = StoreConfig(
            str(self.root(name)),
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=200,
            max_hash_slot_num=64,
            max_index_num=100,
            max_message_size=4096,
        )
        store = self.stores[name] = Store.open(
            RealFiles(),
            config,
            InlineDisk(),
            NOW_MS,
            is_batch_topic="Batch".__eq__,
            delay_levels_ms=[1000, 5000, 10_000],
        )
        self.logs[name] = store.as_replicated(NOW_MS)

    def elect(self, name: str, epoch: int = 0) -> None:
        """Make a different broker the master; all others receive its epoch list."""
        self.epoch = epoch or self.epoch + 1
        self.leads = name
        start = self.logs[name].to_master(self.epoch, NOW_MS)
        self.entries.append(Elected(self.epoch, name, start))
        for other, log in self.logs.items():
            if other != name:
                log.to_replica(NOW_MS)
                record_epochs(log, self.logs[name].epochs)

    def write(self, count: int, topic: str = "T", **more: Any) -> None:
        """Send messages that all replicas have, confirmed and acknowledged; some are also read."""
        for _ in range(count):
            self.send(topic, **more)
        self.replicate()
        self.confirm()

    def send(
        self,
        topic: str = "T",
        *,
        acknowledged: bool = True,
        queue_id: int | None = None,
        properties: bytes = b"",
        body: bytes | None = None,
    ) -> Claim:
        """Send a message to the master, and record its sender's response."""
        self.number += 1
        queue_id = self.number % 3 if queue_id is None else queue_id
        if body is None:
            body = b"%06d" % self.number + bytes(self.number * 37 % 700)
        key = f"KEY{self.number:06d}"
        text = b"UNIQ_KEY\x01" + key.encode() + b"\x02" + properties
        store = self.stores[self.leads]
        done = store.append(NewMessage(topic, queue_id, body, text, 0, 0, NOW_MS), NOW_MS)
        assert done.log_offsets, done.reason
        claim = Claim(
            False,
            topic,
            queue_id,
            done.queue_offset,
            digest_of(body),
            key,
            done.log_offsets[0],
            self.leads,
            self.epoch,
        )
        if acknowledged:
            self.entries.append(claim)
            if self.number % 4 == 0:
                self.entries.append(Claim(True, topic, queue_id, done.queue_offset, claim.digest))
        return claim

    def replicate(self, *names: str) -> None:
        """Copy the master's log to the others."""
        leader = self.logs[self.leads]
        for name in names or tuple(self.logs):
            log = self.logs[name]
            if name != self.leads:
                while log.end < leader.end:
                    size = min(3000, leader.end - log.end)
                    log.append(log.end, b"".join(leader.view(log.end, size)), NOW_MS)

    def confirm(self) -> None:
        """Confirm the whole log in all stores."""
        leader = self.logs[self.leads]
        for log in self.logs.values():
            log.confirm_to(LogOffset(leader.end), NOW_MS)

    def stop(self) -> None:
        """Close all stores cleanly."""
        for store in self.stores.values():
            store.close(NOW_MS)
        self.stores.clear()

    def ledger(self) -> Path:
        """Write the ledger file of the received messages."""
        path = self.folder / "run.jsonl"
        path.write_text("".join(map(encode, self.entries)))
        return path

    def options(self, **more: Any) -> AuditOptions:
        """Options of an audit of the whole group."""
        stores = tuple(f"{name}={self.root(name)}" for name in self.logs)
        given = {"ledgers": (str(self.ledger()),), "block_bytes": BLOCK, **more}
        return AuditOptions(stores, **given)

    def audit(self, **more: Any) -> Audit:
        """Run the audit without Spark."""
        return run(None, self.options(**more))

    # Damage

    def copied(self, folder: Path) -> "Group":
        """A copy of a stopped group in a different folder, to be damaged."""
        assert not self.stores, "it is stopped"
        made = copy(self)
        made.folder, made.entries = folder, list(self.entries)
        shutil.copytree(self.folder, folder)
        return made

    def file(self, name: str, log_offset: int) -> tuple[Path, int]:
        """The log file that holds a byte, and its position there."""
        base = log_offset - log_offset % FILE_SIZE
        return self.root(name) / "commitlog" / f"{base:020d}", log_offset - base

    def change(self, name: str, log_offset: int, data: bytes) -> None:
        """Overwrite bytes of a log."""
        path, position = self.file(name, log_offset)
        with path.open("r+b") as opened:
            opened.seek(position)
            opened.write(data)

    def read(self, name: str, log_offset: int, size: int) -> bytes:
        """Bytes of a log."""
        path, position = self.file(name, log_offset)
        return path.read_bytes()[position : position + size]


def claims(group: Group) -> list[Claim]:
    """Claims of the senders."""
    return [one for one in group.entries if isinstance(one, Claim) and not one.read]


def only(audit: Audit, *names: str) -> Verdict:
    """The first named verdict, after a check that exactly the named ones have findings."""
    broken = [one.name for one in audit.verdicts if one.findings]
    assert sorted(broken) == sorted(names), "\n".join(audit.lines())
    return find_verdict(audit, names[0])


Make = Callable[..., Group]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """A group in a folder of its own."""
    groups: list[Group] = []

    def made(**more: Any) -> Group:
        groups.append(Group(tmp_path / f"group-{len(groups)}", **more))
        return groups[-1]

    yield made
    for group in groups:
        group.stop()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Group:
    """Three stopped stores with some files and five epochs, one of them without a write."""
    made = Group(tmp_path_factory.mktemp("template") / "group")
    made.elect("a", 1)
    made.write(40)
    made.elect("b", 3)
    made.write(30)
    made.elect("c", 4)
    made.elect("a", 5)
    made.write(40)
    made.elect("b", 6)
    made.write(20)
    made.stop()
    return made


@pytest.fixture
def group(template: Group, tmp_path: Path) -> Group:
    """A copy of the template, to be damaged."""
    return template.copied(tmp_path / "group")

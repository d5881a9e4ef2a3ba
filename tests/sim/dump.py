"""Output of a simulated run for the audit: real folders with the files of the simulated disks, and
a ledger.

Owns the ledger that is written while a run goes on: acknowledgements, reads, the writer of each
epoch, and truncations with both epoch lists of the handshake. It can also disable the suite's own
checkers, so that a bug plays to its end and only the audit can find it. It must never look into a
log: that is the audit's work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.sim.ha import suite as ha_suite
from tests.sim.ha.broker import Broker
from tests.sim.ha.checkers import BODY_AT, BODY_SIZE_AT, PHYSICAL_AT, History, Key
from tests.sim.ha.settings import ROOT, Sent
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.replicated import Replicated
from turbopump.engine.types import LogOffset
from turbopump.net.ha import replica as replicas
from turbopump.net.ha.acks import ALL
from turbopump.spark.audit.job import AuditOptions
from turbopump.spark.audit.ledger import Claim, Confirmed, Cut, Elected, Entry, digest_of, encode

BLOCK_BYTES = 4096
"""Logs of a seed are some dozens of kilobytes."""
CHECKS = ("tell", "begins", "writes", "cuts", "show")
"""Methods of the suite's `History` that raise a finding in the midst of a run."""


def pairs(epochs: Epochs) -> tuple[tuple[int, int], ...]:
    return tuple((entry.epoch, entry.start) for entry in epochs)


@dataclass(slots=True)
class Watch:
    """Records the events of a run while it goes on."""

    claims: dict[Claim, None] = field(default_factory=dict)
    elected: list[Elected] = field(default_factory=list)
    cuts: list[tuple[Any, Cut]] = field(default_factory=list)
    """Truncations, each with the disk of the store that was truncated."""
    _met: tuple[Any, ...] = ()

    def answer(self, real: Callable[..., None], broker: Broker, sent: Sent) -> None:
        """A sender learns that all required replicas have its message."""
        if sent.acked and sent.need == ALL:
            claim = Claim(
                False,
                sent.topic,
                sent.queue_id,
                sent.queue_offset,
                digest_of(sent.body),
                log_offset=sent.start,
                broker=broker.name,
                epoch=sent.epoch,
            )
            self.claims[claim] = None
        real(broker, sent)

    def show(self, real: Callable[..., None], broker: Broker, key: Key, record: bytes) -> None:
        """A reader gets a record."""
        if broker.settings.safe and not broker._is_of_before:
            physical = int.from_bytes(record[PHYSICAL_AT : PHYSICAL_AT + 8])
            size = int.from_bytes(record[BODY_SIZE_AT:BODY_AT])
            digest = digest_of(record[BODY_AT : BODY_AT + size])
            self.claims[Claim(True, *key, digest, log_offset=physical)] = None
        real(broker, key, record)

    def term_begins(
        self, real: Callable[..., None], broker: Broker, epoch: int, *due: int | None
    ) -> None:
        """A broker is the master of an epoch now."""
        entry = broker.replicated.epochs.get(epoch)
        start = entry.start if entry is not None else None
        self.elected.append(Elected(epoch, broker.name, start))
        real(broker, epoch, *due)

    def forget(self, real: Callable[..., None], *args: Any) -> None:
        """Drop the recorded claims: an election that may lose data is allowed."""
        self.claims.clear()
        real(*args)

    def meet(self, real: Callable[..., Any], *lists: Any) -> Any:
        """A handshake looks for the consistent point."""
        self._met = lists
        return real(*lists)

    def cut(
        self, real: Callable[..., Any], log: Replicated, log_end: LogOffset, now_ms: int
    ) -> Any:
        """A log is cut: that is written down once it is done."""
        confirm, own, end = log.confirm, log.epochs, log.end
        other, other_end = None, None
        if self._met and (own, end) == (self._met[0], self._met[1]):
            other, other_end = pairs(self._met[2]), self._met[3]
        lists = (pairs(own), other, other_end) if other is not None else (None, None, None)
        cut = Cut("a disk", end, log_end, own.last_epoch, confirm, *lists)

        def was_cut(error: object) -> None:
            if error is None:
                self.cuts.append((log._parts.files, cut))

        removal = real(log, log_end, now_ms)
        removal.then(was_cut)
        return removal


@contextmanager
def watching() -> Iterator[Watch]:
    """Record the events of the runs inside this context. Bugs have to be planted before it."""
    watch, patch = Watch(), pytest.MonkeyPatch()
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (Broker, "_answer", watch.answer),
        (Broker, "show", watch.show),
        (Broker, "_reigns", watch.term_begins),
        (History, "forget", watch.forget),
        (Replicated, "begin_truncation", watch.cut),
        (replicas, "consistent_point", watch.meet),
    ]
    with patch.context() as inside:
        for owner, name, heard in places:
            real = getattr(owner, name)

            def replaced(*args: Any, _heard: Any = heard, _real: Any = real) -> Any:
                return _heard(_real, *args)

            inside.setattr(owner, name, replaced)
        yield watch


def without_checkers(patch: pytest.MonkeyPatch) -> None:
    """The replication suite looks at nothing, while a run goes on and at its end."""

    def quietly(real: Callable[..., Any]) -> Callable[..., None]:
        def called(*args: Any, **options: Any) -> None:
            try:
                real(*args, **options)
            except AssertionError:
                pass

        return called

    for name in CHECKS:
        patch.setattr(History, name, quietly(getattr(History, name)))
    for name in ("answered", "confirmed", "_check"):
        patch.setattr(ha_suite.Run, name, lambda *args: None)
    for name in ("look", "_check_started", "_reigns", "_was_cut"):
        patch.setattr(Broker, name, quietly(getattr(Broker, name)))


def dump(run: Any, folder: Path, watch: Watch) -> AuditOptions:
    """Stores and ledger of a run as it is now."""
    stores = []
    for broker in run.brokers:
        target = folder / broker.name
        (target / "commitlog").mkdir(parents=True)
        stores.append(f"{broker.name}={target}")
        for path in broker.disk.paths(ROOT):
            file = target / Path(path).relative_to(ROOT)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(broker.disk.visible(path) or b""))
    (folder / "run.jsonl").write_text("".join(map(encode, _entries(run, watch))))
    return AuditOptions(tuple(stores), (str(folder / "run.jsonl"),), block_bytes=BLOCK_BYTES)


def _entries(run: Any, watch: Watch) -> Iterator[Entry]:
    """The ledger. Where a master may count copies only, confirmed is no promise."""
    yield from watch.claims
    yield from watch.elected
    promised = run.settings.safe and not run.settings.ha.may_lose
    if promised and run.history.log:
        yield Confirmed("the group", len(run.history.log))
    for disk, cut in watch.cuts:
        name = next(broker.name for broker in run.brokers if broker.disk is disk)
        confirm = cut.confirm if promised else None
        yield Cut(name, cut.start, cut.to, cut.epoch, confirm, cut.own, cut.other, cut.other_end)

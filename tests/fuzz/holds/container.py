"""A container of brokers, and for each of its request codes the largest requests."""

from pathlib import Path
from typing import Final

from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Case, Hold, Meter, OtherThread, ask
from turbopump.broker.container.config import ContainerConfig
from turbopump.broker.container.handlers import BrokerOutcome, ContainerRequests
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.topics import DataVersion

_FIELDS: Final = {
    "configPath": "broker.conf",
    "brokerClusterName": "c",
    "brokerName": "b",
    "brokerId": "0",
}
_NOW_MS: Final = 1_700_000_000_000


class ContainerWalk:
    """A container whose brokers come and go at once: a disk's thread reads their files."""

    def __init__(self, _folder: Path) -> None:
        self.meter = Meter()
        self.disk = OtherThread(self.meter)
        self.table = Dispatcher()
        requests = ContainerRequests(
            ContainerConfig(), self._done, self._done, self._saved, DataVersion()
        )
        requests.register(self.table)

    @property
    def codes(self) -> frozenset[int]:
        """All codes of the dispatch table."""
        return self.table.codes

    def ask(self, code: int, case: Case) -> Hold:
        """The longest part of a request."""
        with self.meter.watching():
            return ask(self.meter, self.table, self.disk, code, case, _NOW_MS)

    def cases(self, code: int, attempt: int = 0) -> list[Case]:
        """Requests of a code."""
        return [*generic(_FIELDS), *_LARGE[code]]

    def close(self) -> None:
        """No-op: nothing runs."""

    def _done(self, *_asked: object) -> Deferred[BrokerOutcome]:
        later: Deferred[BrokerOutcome] = Deferred()
        later.resolve(BrokerOutcome())
        return later

    def _saved(self, _changed: list[Property]) -> Deferred[OSError | None]:
        later: Deferred[OSError | None] = Deferred()
        later.resolve(None)
        return later


_LARGE: Final[dict[int, list[Case]]] = {
    RequestCode.ADD_BROKER: [Case("a long path", _FIELDS | {"configPath": "/" * 4_000})],
    RequestCode.REMOVE_BROKER: [],
    RequestCode.UPDATE_BROKER_CONFIG: [
        Case("unknown keys", _FIELDS, b"".join(b"key%05d=v\n" % n for n in range(1_900)))
    ],
    RequestCode.GET_BROKER_CONFIG: [],
}

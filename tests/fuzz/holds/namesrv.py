"""A name server with full tables, and for each of its request codes the largest requests."""

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Case, Hold, Meter, OtherThread, ask, connect
from turbopump.cli.gc_tuning import GcTuning
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import MAX_ITEM_SIZE, KeyValues, Pieces
from turbopump.namesrv.registrations import BrokerRegistration
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.names import ORDER_NAMESPACE
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.route import QueueData, TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

MANY: Final = 60_000
"""Number of topics of a broker, and of keys of a namespace."""
GROUPS: Final = 2_000
"""Broker groups, each with a common topic."""

_FIELDS = {
    "topic": "T",
    "clusterName": "c",
    "cluster": "c",
    "brokerName": "b",
    "brokerAddr": "10.0.0.1:1",
    "brokerId": "0",
    "haServerAddr": "",
    "compressed": "false",
    "bodyCrc32": "0",
    "namespace": ORDER_NAMESPACE,
    "key": "k",
    "value": "v",
}


class NamesrvWalk:
    """A name server with requests for all of its codes."""

    def __init__(self, folder: Path, many: int = MANY) -> None:
        self.many, self.now_ms = many, 1_000_000
        self.meter = Meter()
        self.gc_tuning = GcTuning()
        self.disk = OtherThread(self.meter)
        files = ConfigFiles(RealFiles(), str(folder))
        table = {ORDER_NAMESPACE: {f"T{number:05d}{'x' * 80}": "a:4" for number in range(many)}}
        self.routes = RouteTable()

        def save(pieces: Pieces) -> Deferred[OSError | None]:
            return self._elsewhere(lambda: files.replace("kvConfig.json", pieces))

        self.server = NameServer(
            NamesrvConfig(),
            self.routes,
            KeyValues(save, table),
            self.now_ms,
            lambda notice: None,
            self._save,
            work=self._work,
        )
        self.table = Dispatcher()
        handlers.register(self.table, self.server)
        for number in range(GROUPS):
            self.register(f"group{number}", ["Wide", f"of {number}"])
        self.register("b", self.names("T"))
        gc.collect()
        self.gc_tuning.begin_freezing()

    @property
    def codes(self) -> frozenset[int]:
        """All codes of the name server's dispatch table."""
        return self.table.codes

    def names(self, prefix: str) -> list[str]:
        """Names of the largest number of topics that a broker has here."""
        return [f"{prefix}{number:05d}{'x' * 40}" for number in range(self.many)]

    def register(self, name: str, topics: list[str]) -> None:
        """A broker of a group of its own, at an address of its own."""
        configs = TopicConfigs(DataVersion(), {one: TopicConfig(one) for one in topics})
        broker = BrokerRegistration("c", name, 0, f"{name}:1", configs)
        done = self.routes.register(broker, connect(), self.now_ms)
        assert done.refusal is None, done.refusal

    def ask(self, code: int, case: Case) -> Hold:
        """The longest part of a request."""
        with self.meter.watching():
            return ask(self.meter, self.table, self.disk, code, case, self.now_ms)

    def cases(self, code: int, attempt: int = 0) -> list[Case]:
        """Requests of a code; each attempt uses names that no earlier attempt used."""
        for name in list(self.routes.cluster_info().broker_addr_table):
            if name != "b" and not name.startswith("group"):
                self.routes.unregister("c", name, self.routes.member_group(name)[0])
        bodies.run_to_result(self.routes.remove_in_steps())
        return [*generic(_FIELDS), *_LARGE[RequestCode(code)](self, f"{attempt}_{code}")]

    def close(self) -> None:
        """End the name server."""
        self.gc_tuning.end_freezing()

    def _elsewhere(self, work: Callable[[], None]) -> Deferred[OSError | None]:
        later: Deferred[OSError | None] = Deferred()
        self.disk.submit(work, later.resolve)
        return later

    def _save(self, properties: list[Property]) -> Deferred[OSError | None]:
        return self._elsewhere(lambda: None)

    def _work(self, steps: Steps[None]) -> None:
        def step() -> None:
            try:
                self.meter.run("step behind", partial(next, steps))
            except StopIteration:
                return
            self.disk.submit(lambda: None, lambda _: step())

        step()


Made = Callable[[NamesrvWalk, str], list[Case]]


def _header(name: str, **more: str) -> Made:
    return lambda walk, run: [Case(name, _FIELDS | more)]


def _none(_walk: NamesrvWalk, _run: str) -> list[Case]:
    return []


def _registered(walk: NamesrvWalk, run: str) -> list[Case]:
    topics = {one: TopicConfig(one) for one in walk.names(f"R{run}")}
    body = RegisterBrokerBody(TopicConfigs(DataVersion(counter=1), topics))
    fields = _FIELDS | {"brokerName": f"new{run}", "brokerAddr": f"{run}:1"}
    compressed = fields | {"compressed": "true", "brokerName": f"z{run}", "brokerAddr": f"z{run}:1"}
    few = TopicConfigs(DataVersion(counter=2), {one: TopicConfig(one) for one in ("one", "two")})
    less = RegisterBrokerBody(few).encode(compressed=True)
    return [
        Case("60,000 topics, then closed", fields, body.encode(), closes=True),
        Case("60,000 topics, compressed", compressed, body.encode(compressed=True)),
        Case("leaves 60,000 topics out", compressed, less),
    ]


def _unregistered(walk: NamesrvWalk, run: str) -> list[Case]:
    name = f"leaves{run}"
    walk.register(name, walk.names(f"U{run}"))
    return [Case("60,000 topics", _FIELDS | {"brokerName": name, "brokerAddr": f"{name}:1"})]


def _topic(_walk: NamesrvWalk, run: str) -> list[Case]:
    queues = [QueueData(f"group{number}", 4, 4, 6, 0) for number in range(400)]
    body = TopicRouteData(queues, []).encode()
    many = [QueueData(f"group{number}", 4, 4, 6, 0) for number in range(100_000)]
    names = _FIELDS | {"topic": f"by hand {run}"}
    return [
        Case("400 groups", names, body),
        Case("100,000 groups", names, TopicRouteData(many, []).encode()),
    ]


def _put(_walk: NamesrvWalk, run: str) -> list[Case]:
    return [
        Case("one of 60,000", _FIELDS | {"key": run}),
        Case("long", _FIELDS | {"key": run, "value": "v" * (MAX_ITEM_SIZE - 100)}),
        Case("another namespace", _FIELDS | {"namespace": run}),
    ]


def _config(_walk: NamesrvWalk, _run: str) -> list[Case]:
    lines = b"".join(b"key%05d=v\n" % number for number in range(1_900))
    return [Case("unknown keys", _FIELDS, lines)]


_LARGE: Final[dict[RequestCode, Made]] = {
    RequestCode.PUT_KV_CONFIG: _put,
    RequestCode.GET_KV_CONFIG: _header("one of 60,000"),
    RequestCode.DELETE_KV_CONFIG: _header("one of 60,000", key=f"T00000{'x' * 80}"),
    RequestCode.REGISTER_BROKER: _registered,
    RequestCode.UNREGISTER_BROKER: _unregistered,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _header("2,000 groups", topic="Wide"),
    RequestCode.GET_BROKER_CLUSTER_INFO: _none,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _header("60,000 topics"),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _none,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: lambda walk, run: [
        Case("2,000 groups", _FIELDS | {"topic": _wide(walk, run)})
    ],
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _header("60,000 items"),
    RequestCode.GET_TOPICS_BY_CLUSTER: _header("60,000 topics"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _none,
    RequestCode.GET_UNIT_TOPIC_LIST: _none,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _none,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _none,
    RequestCode.UPDATE_NAMESRV_CONFIG: _config,
    RequestCode.GET_NAMESRV_CONFIG: _none,
    RequestCode.QUERY_DATA_VERSION: lambda walk, run: [
        Case("a version", _FIELDS, DataVersion().encode())
    ],
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _header("60,000 topics"),
    RequestCode.GET_BROKER_MEMBER_GROUP: _none,
    RequestCode.BROKER_HEARTBEAT: _none,
}


def _wide(walk: NamesrvWalk, run: str) -> str:
    name = f"wide {run}"
    queues = (QueueData(f"group{number}", 4, 4, 6, 0) for number in range(GROUPS))
    assert walk.routes.add_topic(name, queues)
    return name

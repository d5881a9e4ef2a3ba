"""Claims that a registration cannot make: versions, timeouts, texts of no broker, another broker's
entry."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.namesrv.test_handlers import ADDRESS, Bench

from turbopump.namesrv import handlers
from turbopump.namesrv.registration_limits import MAX_TIMEOUT_MS
from turbopump.namesrv.routes import DEFAULT_TIMEOUT_MS
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.route import QueueData, TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

HIJACKER = "10.6.6.6:1"
LONG = 20_000


def body_of(version: DataVersion, *topics: str, mappings: dict[str, Any] | None = None) -> bytes:
    table = {name: TopicConfig(name, 4, 4) for name in topics or ("T", "U")}
    configs = TopicConfigs(version, table, topic_queue_mapping_info_map=mappings or {})
    return RegisterBrokerBody(configs).encode()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def probes(bench: Bench) -> list[tuple[str, Callable[[int], None]]]:
    """Requested probes of addresses, with the callbacks for a refused connection."""
    asked: list[tuple[str, Callable[[int], None]]] = []
    bench.server.probe = lambda address, refused: asked.append((address, refused))
    return asked


@pytest.mark.parametrize(
    "version",
    [
        DataVersion(0, 1 << 62, 0),
        DataVersion(0, 1 << 31, 0),
        DataVersion(1 << 62, 0, 0),
        DataVersion(0, 0, 1 << 62),
        DataVersion(-1, 0, 0),
        DataVersion(0, -2, 0),
    ],
)
def test_versions_that_no_broker_has(bench: Bench, version: DataVersion) -> None:
    bench.register()
    response = bench.register(brokerAddr=HIJACKER, body=body_of(version))
    assert (response.code, response.remark) == (
        1,
        "register broker failed, the data version is out of range",
    )
    assert bench.server.routes.member_group("a") == {0: ADDRESS}


def test_versions_that_java_brokers_have(bench: Bench) -> None:
    for state in (-1, 0, 7, 2**31 - 1):
        version = DataVersion(12_345, state, 1_795_267_173_310)
        assert bench.register(body=body_of(version)).code == 0
        assert bench.server.routes.data_version("c", ADDRESS) == version


@pytest.mark.parametrize(
    ("asked", "lives_ms"),
    [(str(1 << 62), MAX_TIMEOUT_MS), ("10000", 10_000), ("-5", 0), (None, DEFAULT_TIMEOUT_MS)],
)
def test_timeouts_are_those_of_brokers(bench: Bench, asked: str | None, lives_ms: int) -> None:
    bench.register(**({} if asked is None else {"heartbeatTimeoutMillis": asked}))
    assert bench.server.routes.unregister_silent(bench.now_ms + lives_ms) == []
    assert len(bench.server.routes.unregister_silent(bench.now_ms + lives_ms + 1)) == 1


def test_a_broker_that_refuses_connections_does_not_hold_a_name(
    bench: Bench, probes: list[tuple[str, Callable[[int], None]]]
) -> None:
    hijack = {
        "brokerAddr": HIJACKER,
        "body": body_of(DataVersion(0, 2**31 - 1, 0)),
        "heartbeatTimeoutMillis": str(1 << 62),
    }
    bench.register(state=3)
    bench.register(**hijack)
    assert bench.server.routes.member_group("a") == {0: HIJACKER}
    assert probes == []
    assert bench.register(state=3).code == 0
    assert [address for address, _ in probes] == [HIJACKER]
    assert bench.server.routes.member_group("a") == {0: HIJACKER}, "it may be living"
    probes[0][1](bench.now_ms)
    assert bench.server.routes.member_group("a") == {0: ADDRESS}
    assert bench.route().broker_datas[0].broker_addrs == {0: ADDRESS}
    # When its connection closes it is removed, as after any registration.
    bench.peer.lost()
    assert bench.server.routes.member_group("a") == {}


def test_a_probe_that_comes_late_changes_nothing(
    bench: Bench, probes: list[tuple[str, Callable[[int], None]]]
) -> None:
    bench.register(brokerAddr="10.0.0.2:1", state=9)
    bench.register(state=3)
    bench.register(brokerAddr="10.0.0.3:1", state=10)
    probes[0][1](bench.now_ms)
    assert bench.server.routes.member_group("a") == {0: "10.0.0.3:1"}


def test_an_older_claim_of_the_holder_itself_sends_no_query(
    bench: Bench, probes: list[tuple[str, Callable[[int], None]]]
) -> None:
    bench.register(state=9)
    assert bench.register(state=3).code == 0
    assert probes == []


@pytest.mark.parametrize(
    "member", ["brokerName", "brokerAddr", "clusterName", "haServerAddr", "__ZONE_NAME"]
)
def test_long_names_are_refused(bench: Bench, member: str) -> None:
    assert bench.register(**{member: "x" * 255}).code == 0
    response = bench.register(**{member: "x" * 256})
    assert response.code == 1
    assert "256 characters" in (response.remark or "")


def test_names_too_long_for_the_table_are_left_out(bench: Bench) -> None:
    mappings = {"T": {"topic": "T", "bname": "a"}, "U": {"topic": "U", "x": "y" * 70_000}}
    body = body_of(DataVersion(), "T", "U", "t" * 256, mappings=mappings)
    assert bench.register(body=body).code == 0
    assert bench.server.routes.topics() == ["T", "U"]
    assert bench.route("T").topic_queue_mapping_by_broker == {"a": mappings["T"]}
    assert bench.route("U").topic_queue_mapping_by_broker is None
    servers = RegisterBrokerBody(TopicConfigs(), ["x"] * 17).encode()
    assert bench.register(body=servers).code == 1
    servers = RegisterBrokerBody(TopicConfigs(), ["x" * 256]).encode()
    assert bench.register(body=servers).code == 1


def test_topics_are_counted_in_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.namesrv.topic_queues.MAX_SIZE", 1 << 20)
    info = {"topic": "T", "bname": "a", "currIdMap": {str(n): n for n in range(100)}}

    def attack() -> None:
        for number in range(300):
            names = [f"{number:03d}{n:02d}".ljust(250, "x") for n in range(20)]
            bench.register(
                brokerName=f"b{number}",
                brokerAddr=f"10.0.{number}.1:1",
                body=body_of(DataVersion(), *names, mappings={names[0]: {**info, "bname": ""}}),
            )

    gc.collect()
    tracemalloc.start()
    attack()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    routes = bench.server.routes
    assert (1 << 19) < routes.size <= 1 << 20
    assert size < 3 << 20
    for number in range(300):
        routes.unregister("c", f"b{number}", f"10.0.{number}.1:1")
    run_to_result(routes.remove_in_steps())
    assert routes.size == 0
    bench.register()
    route = TopicRouteData([QueueData("a", 1, 2, 6)]).encode()
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    assert bench.ask(code, route, topic="t" * 255).code == 0
    assert bench.ask(code, route, topic="t" * 256).code == 1


def test_no_request_leaves_a_long_text_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        "topic", "brokerName", "brokerAddr", "clusterName", "cluster", "haServerAddr", "namespace",
        "key", "__ZONE_NAME",
    ]  # fmt: skip
    monkeypatch.setattr(handlers.logger, "disabled", True)  # because pytest keeps every logged line
    bench.register()
    code = 0

    def ask(first: int) -> None:
        for number in range(first, first + 3):
            name = f"{number:05d}".ljust(LONG, "x")
            fields = dict.fromkeys(keys, name) | {"brokerId": "0", "value": "v"}
            for body in (b"", body_of(DataVersion(), name, "T"), f"{name}=x".encode()):
                bench.ask(code, body, **fields)
                bench.ask(code, body, **(fields | {"brokerName": "a", "namespace": "n"}))

    tracemalloc.start()
    try:
        for code in sorted(bench.dispatcher.codes):
            ask(0)
            before = tracemalloc.get_traced_memory()[0]
            ask(3)
            if tracemalloc.get_traced_memory()[0] - before >= 2 * LONG:
                gc.collect()  # takes long in a process with many tests
            assert tracemalloc.get_traced_memory()[0] - before < 2 * LONG, code
    finally:
        tracemalloc.stop()

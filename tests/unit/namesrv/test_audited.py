"""Each administrator's change of a name server is a line of the log, with old and new value."""

import logging

import pytest
from tests.unit.namesrv.test_handlers import Bench

from turbopump.net.wire.codes import RequestCode

AUDIT = "turbopump.net.config.audit"
PEER = "192.0.2.1:40000"


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level(logging.INFO, AUDIT)
    return Bench()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == AUDIT]


def test_a_configuration(server: Bench, caplog: pytest.LogCaptureFixture) -> None:
    server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"waitSecondsForService=7\n", AccessKey="root")
    server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"listenPort=1\n")
    taken, refused = lines(caplog)
    assert taken == (
        f"UPDATE_NAMESRV_CONFIG by {PEER} (root) answered 0: waitSecondsForService=7;"
        " before: waitSecondsForService=45; after: waitSecondsForService=7"
    )
    assert refused == (
        f"UPDATE_NAMESRV_CONFIG by {PEER} answered 1: listenPort=1;"
        " before: listenPort=9876; after: listenPort=9876"
    )


def test_key_values(server: Bench, caplog: pytest.LogCaptureFixture) -> None:
    of = {"namespace": "NS", "key": "k"}
    server.ask(RequestCode.PUT_KV_CONFIG, **of, value="1")
    server.ask(RequestCode.PUT_KV_CONFIG, **of, value="2")
    server.ask(RequestCode.DELETE_KV_CONFIG, **of)
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="NS", key="password", value="hidden")
    states = [line.partition("; ")[2] for line in lines(caplog)]
    assert states == ["before: ; after: 1", "before: 1; after: 2", "before: 2; after: ", ""]


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"}),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"}),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}),
    ],
)
def test_a_change_of_routes(
    server: Bench, caplog: pytest.LogCaptureFixture, code: RequestCode, fields: dict[str, str]
) -> None:
    server.register()
    server.ask(code, **fields)
    ((name, value),) = fields.items()
    assert lines(caplog) == [f"{code.name} by {PEER} answered 0: {name}={value}"]


def test_questions_are_no_lines(server: Bench, caplog: pytest.LogCaptureFixture) -> None:
    server.register()
    server.route()
    server.ask(RequestCode.GET_NAMESRV_CONFIG)
    assert lines(caplog) == []

"""Each administrator's change of a container is a line of the log, with old and new value."""

import logging

import pytest
from tests.unit.broker.container.test_handlers import IDENTITY, Container

from turbopump.broker.container.handlers import BrokerOutcome
from turbopump.net.wire.codes import RequestCode, ResponseCode

AUDIT = "turbopump.net.config.audit"


@pytest.fixture
def container(caplog: pytest.LogCaptureFixture) -> Container:
    caplog.set_level(logging.INFO, AUDIT)
    return Container()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines without the addresses of peers, which differ."""
    found = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert all(" by " in line for line in found)
    return [line.partition(" by ")[0] + line[line.index(" answered") :] for line in found]


def test_a_configuration(container: Container, caplog: pytest.LogCaptureFixture) -> None:
    container.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"namesrvAddr=a:1\n")
    container.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"namesrvAddr=b:2\n")
    container.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"listenPort=1\n")
    first, second, refused = lines(caplog)
    assert first.endswith("namesrvAddr=a:1; before: namesrvAddr=; after: namesrvAddr=a:1")
    assert second.endswith("namesrvAddr=b:2; before: namesrvAddr=a:1; after: namesrvAddr=b:2")
    assert refused.startswith("UPDATE_BROKER_CONFIG answered 1: listenPort=1; before: ")


def test_brokers_have_their_lines_once_they_are_answered(
    container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    container.ask(RequestCode.ADD_BROKER, {"configPath": "/etc/b.conf"})
    container.ask(RequestCode.REMOVE_BROKER, IDENTITY)
    assert lines(caplog) == [], "neither has ended"
    container.outcomes[1].resolve(BrokerOutcome(ResponseCode.BROKER_NOT_EXIST, "no broker"))
    container.outcomes[0].resolve(BrokerOutcome())
    removed, added = lines(caplog)
    assert removed == "REMOVE_BROKER answered 211: brokerClusterName=C brokerName=b brokerId=0"
    assert added == "ADD_BROKER answered 0: configPath=/etc/b.conf"

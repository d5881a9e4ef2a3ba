"""Responses of a container to requests that add, remove and configure brokers."""

from typing import Any

import pytest
from tests.fuzz.holds.meter import connect

from turbopump.broker.container.config import ContainerConfig
from turbopump.broker.container.handlers import UNDER_WAY_MAX, BrokerOutcome, ContainerRequests
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import REMARK_MAX, Dispatcher
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.topics import DataVersion

IDENTITY = {"brokerClusterName": "C", "brokerName": "b", "brokerId": "0"}


class Container:
    """A container whose brokers start and stop with the outcomes that a test sets."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.outcomes: list[Deferred[BrokerOutcome]] = []
        self.saved: list[Property] = []
        self.table = Dispatcher()
        self.config = ContainerConfig(path="c.conf")
        requests = ContainerRequests(
            self.config, self._began, self._ended, self._save, DataVersion(0, 0, 1)
        )
        requests.register(self.table)

    def _began(self, path: str) -> Deferred[BrokerOutcome]:
        return self._later(path)

    def _ended(self, *identity: object) -> Deferred[BrokerOutcome]:
        return self._later(identity)

    def _later(self, asked: object) -> Deferred[BrokerOutcome]:
        self.asked.append(asked)
        self.outcomes.append(Deferred())
        return self.outcomes[-1]

    def _save(self, changed: list[Property]) -> Deferred[OSError | None]:
        self.saved += changed
        later: Deferred[OSError | None] = Deferred()
        later.resolve(None)
        return later

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> Any:
        response = self.table.dispatch(Command(code, fields=fields, body=body), connect(), 5)
        return response.value if isinstance(response, Deferred) and response.done else response


@pytest.fixture
def container() -> Container:
    return Container()


def test_an_addition_is_answered_when_the_broker_serves(container: Container) -> None:
    response = container.ask(RequestCode.ADD_BROKER, {"configPath": "/etc/b.conf"})
    assert container.asked == ["/etc/b.conf"] and not response.done
    container.outcomes[0].resolve(BrokerOutcome())
    assert (response.value.code, response.value.remark) == (0, None)


@pytest.mark.parametrize("fields", [{}, {"configPath": ""}])
def test_an_addition_of_nothing(container: Container, fields: dict[str, str]) -> None:
    response = container.ask(RequestCode.ADD_BROKER, fields)
    assert (response.code, response.remark) == (1, "addBroker config path is empty")


@pytest.mark.parametrize("path", ["x" * 5_000, "a\nb", "a\0b"])
def test_a_path_that_is_none(container: Container, path: str) -> None:
    response = container.ask(RequestCode.ADD_BROKER, {"configPath": path})
    assert response.code == 1 and response.remark.startswith("addBroker properties empty: ")
    assert not container.asked


def test_a_removal(container: Container) -> None:
    response = container.ask(RequestCode.REMOVE_BROKER, IDENTITY)
    assert container.asked == [("C", "b", 0)]
    container.outcomes[0].resolve(BrokerOutcome(ResponseCode.BROKER_NOT_EXIST, "Broker not exist"))
    assert (response.value.code, response.value.remark) == (211, "Broker not exist")


@pytest.mark.parametrize("field", list(IDENTITY))
def test_a_removal_of_nothing_named(container: Container, field: str) -> None:
    fields = {key: value for key, value in IDENTITY.items() if key != field}
    assert container.ask(RequestCode.REMOVE_BROKER, fields).code == 1
    long = IDENTITY | {field: "9" * 5_000}
    assert container.ask(RequestCode.REMOVE_BROKER, long).code == 1
    assert not container.asked


def test_a_remark_is_one_line_of_bounded_length(container: Container) -> None:
    response = container.ask(RequestCode.ADD_BROKER, {"configPath": "b"})
    container.outcomes[0].resolve(BrokerOutcome(ResponseCode.SYSTEM_ERROR, "a\nb" * 1_000))
    assert len(response.value.remark) == REMARK_MAX and "\n" not in response.value.remark


def test_so_many_at_once(container: Container) -> None:
    for _ in range(UNDER_WAY_MAX):
        container.ask(RequestCode.ADD_BROKER, {"configPath": "b"})
    assert container.ask(RequestCode.ADD_BROKER, {"configPath": "b"}).code == 2
    assert container.ask(RequestCode.REMOVE_BROKER, IDENTITY).code == 2
    container.outcomes[0].resolve(BrokerOutcome())
    assert not container.ask(RequestCode.REMOVE_BROKER, IDENTITY).done
    assert len(container.asked) == UNDER_WAY_MAX + 1


def test_its_configuration(container: Container) -> None:
    shown = container.ask(RequestCode.GET_BROKER_CONFIG, {})
    assert b"listenPort=10811\n" in shown.body and b"brokerConfigPaths=" in shown.body
    assert '"counter":0' in shown.fields["version"]
    changed = b"serverWorkerThreads=9\nnoSuchKey=1\n"
    assert container.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, changed).code == 0
    assert [item.key for item in container.saved] == ["serverWorkerThreads"]
    shown = container.ask(RequestCode.GET_BROKER_CONFIG, {})
    assert b"serverWorkerThreads=9\n" in shown.body and '"counter":1' in shown.fields["version"]


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"brokerConfigPaths=/x\n", ResponseCode.NO_PERMISSION, "black list"),
        (b"listenPort=1\n", ResponseCode.SYSTEM_ERROR, "listenPort cannot change while the"),
        (b"\xff=1", ResponseCode.SYSTEM_ERROR, "not UTF-8"),
    ],
)
def test_a_change_that_is_refused(
    container: Container, body: bytes, code: ResponseCode, remark: str
) -> None:
    response = container.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)
    assert response.code == code and remark in response.remark
    assert not container.saved


def test_no_other_request_is_known(container: Container) -> None:
    assert container.ask(RequestCode.SEND_MESSAGE_V2, {}).code == 3

"""Each administrator's change of a controller is a line of the log, with old and new value."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.controller.test_hostile_names import World

from turbopump.net.wire.codes import RequestCode

AUDIT = "turbopump.net.config.audit"
PEER = "10.0.0.1:9"
GROUP = {"clusterName": "c", "brokerName": "b"}


@pytest.fixture
def controller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    found = World(tmp_path / "store")
    found.join()
    caplog.set_level(logging.INFO, AUDIT)
    yield found
    found.storage.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == AUDIT]


def test_a_configuration(controller: World, caplog: pytest.LogCaptureFixture) -> None:
    before = controller.config.values_as_text()["scanNotActiveBrokerInterval"]
    body = b"scanNotActiveBrokerInterval=777\n"
    controller.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body, AccessKey="root")
    (line,) = lines(caplog)
    assert line == (
        f"UPDATE_CONTROLLER_CONFIG by {PEER} (root) answered 0: scanNotActiveBrokerInterval=777;"
        f" before: scanNotActiveBrokerInterval={before}; after: scanNotActiveBrokerInterval=777"
    )


def test_an_election_and_a_removal_have_their_answers(
    controller: World, caplog: pytest.LogCaptureFixture
) -> None:
    controller.ask(RequestCode.CONTROLLER_ELECT_MASTER, **GROUP, brokerId=1)
    clean = {"brokerControllerIdsToClean": "1", "isCleanLivingBroker": "true"}
    controller.ask(RequestCode.CLEAN_BROKER_DATA, **GROUP, **clean)
    elected, cleaned = lines(caplog)
    assert elected.startswith(f"CONTROLLER_ELECT_MASTER by {PEER} answered ")
    assert elected.endswith("clusterName=c brokerName=b brokerId=1")
    assert cleaned.startswith(f"CLEAN_BROKER_DATA by {PEER} answered 0: ")
    assert "brokerName=b brokerControllerIdsToClean=1" in cleaned


def test_questions_are_no_lines(controller: World, caplog: pytest.LogCaptureFixture) -> None:
    controller.ask(RequestCode.GET_CONTROLLER_CONFIG)
    controller.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert lines(caplog) == []

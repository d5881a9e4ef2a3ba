"""The golden frames as fixtures."""

import json

import pytest
from tests.wire.frames import CAPTURES, FRAMES, Golden, golden_frames


@pytest.fixture(scope="session")
def all_frames() -> list[Golden]:
    """The frames of every capture."""
    return [golden for capture in CAPTURES for golden in golden_frames(capture)]


@pytest.fixture(params=CAPTURES)
def frames(request: pytest.FixtureRequest) -> tuple[Golden, ...]:
    """The frames of a capture; the test runs for each."""
    return golden_frames(request.param)


@pytest.fixture(scope="session")
def code_names() -> dict[str, dict[str, str]]:
    """Names of request and response codes, as RocketMQ 5.5.0 has them."""
    return json.loads((FRAMES / "codes.json").read_bytes())

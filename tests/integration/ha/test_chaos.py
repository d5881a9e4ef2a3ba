"""Three brokers as processes under trouble: the short story; `make chaos` has the long ones."""

from pathlib import Path

import pytest
import uvloop
from tests.integration.ha.__main__ import SYNC_FLUSH, play

pytestmark = pytest.mark.integration


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "more"), [(1, SYNC_FLUSH), (2, "")])
def test_three_brokers_lose_nothing(tmp_path: Path, seed: int, more: str) -> None:
    told = uvloop.run(play(tmp_path, seed, 6, more))
    assert told.acked > 500
    assert told.audited > told.acked, "and what was read"

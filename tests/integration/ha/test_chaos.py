"""Three brokers as processes under trouble: the short story; `make chaos` has the long ones."""

import socket
from pathlib import Path

import pytest
import uvloop
from tests.integration.ha.__main__ import SYNC_FLUSH, play, play_of
from tests.integration.ha.group import Group
from tests.integration.ha.processes import HOST

pytestmark = pytest.mark.integration


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "more"), [(1, SYNC_FLUSH), (2, "")])
def test_three_brokers_lose_nothing(tmp_path: Path, seed: int, more: str) -> None:
    totals = uvloop.run(play(tmp_path, seed, 4, more))
    assert totals.acked > 500
    assert totals.audited > totals.acked, "and what was read"


def test_a_broker_that_cannot_start_ends_the_story(tmp_path: Path) -> None:
    """A failed start ends the story and all other processes: a remaining one would hold the loop
    without end.
    """

    class Taken(Group):
        async def start(self) -> None:
            with socket.create_server((HOST, self._ports[1][2])):
                await super().start()

    group = Taken(tmp_path, 1)
    with pytest.raises(AssertionError, match="broker-3 ended"):
        uvloop.run(play_of(group, 1))
    assert not any(one.runs for one in group.brokers.values())

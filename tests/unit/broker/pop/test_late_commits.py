"""A member that pulled commits an offset after its group has begun to pop."""

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import Popper

from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.offsets import UpdateConsumerOffsetRequest


def set_mode(world: World, mode: str) -> None:
    members = {"topic": "T", "consumerGroup": "g", "mode": mode, "popShareQueueNum": 0}
    response = world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_json(members))
    assert response.code == ResponseCode.SUCCESS


def commit(world: World, queue_offset: int) -> int:
    header = UpdateConsumerOffsetRequest("g", "T", 0, queue_offset)
    assert world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS
    return world.broker.offsets.query("g", "T", 0)


@pytest.mark.parametrize("mode", ["POP", ""])
def test_a_late_commit_does_not_rewind_popped_offsets(world: World, mode: str) -> None:
    popper = Popper(world)
    popper.send(*map(str, range(30)))
    if mode:
        set_mode(world, mode)
    assert len(popper.pop(invisible_time=60_000)) == 30
    assert commit(world, 7) == 30
    assert popper.pop() == []
    assert commit(world, 30) == 30


def test_a_group_that_pulls_again_commits_lower_offsets(world: World) -> None:
    popper = Popper(world)
    popper.send(*map(str, range(30)))
    popper.pop(invisible_time=60_000)
    set_mode(world, "PULL")
    assert commit(world, 7) == 7

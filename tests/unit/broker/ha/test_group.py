"""A group described by a file: the allowed content, and brokers that follow it."""

import json
from pathlib import Path

import pytest
from tests.unit.broker.ha.network import Group

from turbopump.broker.ha.group import GroupFileError, parse_group
from turbopump.broker.ha.options import HaOptions
from turbopump.engine.types import PutStatus


def text(epoch: int, master: int, count: int = 2, **more: object) -> str:
    brokers = {str(number): f"ha:{9000 + number}" for number in range(1, count + 1)}
    return json.dumps({"epoch": epoch, "master": master, "brokers": brokers, **more})


def test_a_group() -> None:
    group = parse_group(text(3, 2).encode())
    assert group.epoch == 3
    assert group.master_address == "ha:9002"
    assert group.members == {1, 2}
    assert parse_group(text(1, 1, members=[1]).encode()).members == {1}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "{",
        "[" * 100_000,
        text(0, 1),
        text(1, 3),
        text(1, 1, members=[2]),
        text(1, 1, members=[1, 9]),
        text(1, 1, count=100),
        json.dumps({"epoch": 1, "master": 1, "brokers": {"1": "nowhere"}}),
        json.dumps({"epoch": True, "master": 1, "brokers": {"1": "a:1"}}),
        json.dumps({"epoch": 1, "master": 1, "brokers": ["a:1"]}),
        json.dumps({"epoch": 1, "master": 1, "brokers": {"1": "a:1"}, "members": 1}),
    ],
)
def test_an_invalid_group(content: str) -> None:
    with pytest.raises(GroupFileError):
        parse_group(content.encode())


def options(number: int, path: Path) -> HaOptions:
    return HaOptions(
        own_id=number,
        ha_group_file=str(path),
        bind_address="ha",
        ha_listen_port=9000 + number,
        all_ack_in_sync_state_set=True,
    )


def test_brokers_go_by_the_file(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(text(1, 1))
    one, two = group.add(1, options(1, path)), group.add(2, options(2, path))
    group.settle(300)
    assert (one.service.is_master, two.service.is_master) == (True, False)
    roles: list[bool] = []
    two.service.on_role.append(lambda: roles.append(two.service.is_master))
    responses = one.send(b"a")
    group.settle(100)
    assert responses == [PutStatus.PUT_OK]
    path.write_text(text(2, 2))
    group.settle(3000)
    assert (one.service.is_master, two.service.is_master) == (False, True)
    assert roles == [True], "a replica becomes the master"
    responses = two.send(b"b")
    group.settle(100)
    assert responses == [PutStatus.PUT_OK]
    assert one.read() == two.read() == [b"a", b"b"]
    path.write_text(text(1, 1))
    group.settle(3000)
    assert two.service.is_master, "an older epoch is no news"


def test_without_a_file_that_says_something_there_is_no_role(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(text(1, 1)[:20])
    one = group.add(1, options(1, path))
    assert one.put().status is PutStatus.SERVICE_NOT_AVAILABLE
    path.unlink()
    group.settle(1500)
    assert not one.service.is_master
    one.stop()
    one = group.add(1, options(1, path))
    path.write_text(text(1, 1, count=1))
    group.settle(1500)
    assert one.service.is_master
    assert one.put().status is PutStatus.PUT_OK


def test_a_master_that_was_restarted_needs_a_new_epoch(group: Group, tmp_path: Path) -> None:
    """The restarted master may have lost bytes that replicas have under the same epoch."""
    path = tmp_path / "group.json"
    path.write_text(text(1, 1, count=1))
    group.add(1, options(1, path)).stop()
    del group.brokers[1]
    again = group.add(1, options(1, path))
    group.settle(1500)
    assert not again.service.is_master
    path.write_text(text(2, 1, count=1))
    group.settle(1500)
    assert again.service.is_master
    again.stop()
    path.write_text(text(1, 2))
    del group.brokers[1]
    old_news = group.add(1, options(1, path))
    group.settle(1500)
    assert old_news.service.master_address == "", "an older epoch's master is not followed"

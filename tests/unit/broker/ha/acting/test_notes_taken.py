"""A returning master takes over the pops of the replica that acted for it (RIP-32)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.acting.test_acting_group import (
    ACTING,
    AS_SLAVE,
    MASTER,
    OTHER,
    SLAVE,
    Bench,
    make,  # noqa: F401 - a fixture
)

from turbopump.broker.ha.acting.acting_group import HELD_MS
from turbopump.broker.pop.acting_journal import TAKES_NOTES, ActingJournal
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.pop_records import Acknowledgement, CheckPoint, CheckPointKey

NOW_MS = 1_700_000_000_000
AS_OTHER = AS_SLAVE.replace("brokerId=1", "brokerId=2")


def point(start: int) -> CheckPoint:
    return CheckPoint(CheckPointKey("T", "G", 0, QueueOffset(start), NOW_MS, "b"), 900, (0,))


def notes(bench: Bench) -> ActingJournal:
    return bench.world.broker.pop.notes


def starts(bench: Bench) -> list[int]:
    return sorted(note.key.start for note in notes(bench).all_notes())


def pops(bench: Bench, *at: int) -> None:
    """Add notes of an acting replica; all worlds use the same random seed, so set the
    generation."""
    notes(bench)._generation = "abcdef0123456789"
    for start in at:
        notes(bench).add_check_point(point(start), 0, NOW_MS)


@pytest.fixture
def pair(make: Callable[..., Bench]) -> tuple[Bench, Bench]:  # noqa: F811
    """A replica that acted, and its master, which has returned."""
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    assert slave.world.broker.role.is_acting
    pops(slave, 3, 5)
    ack = Acknowledgement(point(5).key, (QueueOffset(5),))
    notes(slave).add_ack(ack, 900, 0, NOW_MS)
    slave.has_master, master.connections.hosts = True, ["10.0.0.2"]
    return slave, master


def test_a_master_that_is_back_has_the_notes_before_it_serves(pair: tuple[Bench, Bench]) -> None:
    slave, master = pair
    master.world.pass_time(1_500)
    assert (master.online, starts(master)) == (1, [3, 5])
    known = notes(master).get(point(5).key)
    assert known is not None and known.acked == (5,)
    assert starts(slave) == [], "its master has them"


def test_offsets_do_not_travel_without_notes(pair: tuple[Bench, Bench]) -> None:
    slave, master = pair
    slave.world.broker.offsets.commit("G", "T", 0, QueueOffset(6), NOW_MS)
    asked: list[tuple[bool, int]] = []
    names = master.names
    response = names._answer

    def noting(address: str, request: Command) -> Any:
        if request.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            asked.append(("popNotes" in request.fields, len(notes(master))))
        return response(address, request)

    names._answer = noting  # type: ignore[method-assign]
    master.world.pass_time(1_500)
    assert asked == [(True, 0), (False, 2)]
    assert master.offset() == 6


def test_notes_that_are_not_on_the_disk_keep_a_master_waiting(
    pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    slave, master = pair

    def fail(*_of: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        for name in ("append", "replace"):
            patched.setattr(type(master.world.files), name, fail)
        master.world.pass_time(3_500)
        assert master.online == 0
        assert "are not saved: no space" in master.group.reason_not_serving
    master.world.broker.saver.tick()
    master.world.pass_time(1_500)
    assert (master.online, starts(master), starts(slave)) == (1, [3, 5], [])


def test_notes_for_which_there_is_no_room_keep_a_master_waiting(
    pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    slave, master = pair
    monkeypatch.setattr("turbopump.broker.pop.acting_journal.SIZE_MAX", 500)
    master.world.pass_time(2_500)
    assert (master.online, len(notes(slave))) == (0, 2)
    assert "no room for the notes of replica 1" in master.group.reason_not_serving


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"popNotes":[]}', "list"),
        (b'{"popNotes":{"generation":"' + b"0" * 16 + b'","isLast":false,"number":0}}', "end"),
        (b'{"popNotes":{"generation":"x"}}', "generation"),
    ],
)
def test_notes_that_are_none_keep_a_master_waiting(
    pair: tuple[Bench, Bench], body: bytes, why: str
) -> None:
    _, master = pair
    response = master.names._answer

    def lying(address: str, request: Command) -> Any:
        return (
            new_response(request, 0, body=body)
            if "popNotes" in request.fields
            else (response(address, request))
        )

    master.names._answer = lying  # type: ignore[method-assign]
    master.world.pass_time(3_000)
    assert master.online == 0
    assert why in master.group.reason_not_serving


def test_a_replica_of_rocketmq_has_none(pair: tuple[Bench, Bench]) -> None:
    """RocketMQ's replica ignores the unknown request field and returns its offsets."""
    _, master = pair
    response = master.names._answer

    def plain(address: str, request: Command) -> Any:
        request.fields.pop("popNotes", None)
        return response(address, request)

    master.names._answer = plain  # type: ignore[method-assign]
    master.world.pass_time(1_500)
    assert (master.online, starts(master)) == (1, [])


def test_the_next_acting_replica_knows_the_pops_of_the_last_one(
    make: Callable[..., Bench],  # noqa: F811
) -> None:
    slave, other = make(AS_SLAVE, SLAVE), make(AS_OTHER, OTHER)
    pops(other, 3)
    other.world.broker.offsets.commit("G", "T", 0, QueueOffset(4), NOW_MS)
    slave.say(_1=SLAVE, _2=OTHER)
    assert slave.world.broker.role.is_acting
    assert (starts(slave), slave.offset(), starts(other)) == ([3], 4, [3])


def test_a_master_says_whether_it_takes_notes(make: Callable[..., Bench]) -> None:  # noqa: F811
    for text, takes in (
        (ACTING, True),
        (ACTING + "skipPreOnline=true\n", False),
        ("brokerName=b\n", False),
    ):
        master = make(text, f"10.0.1.{len(text)}:10911")
        request = new_request(RequestCode.GET_ALL_CONSUMER_OFFSET, fields={TAKES_NOTES: "true"})
        response = master.world.dispatch(request)
        assert isinstance(response, Command)
        assert (TAKES_NOTES in response.fields) == takes
        plain = master.world.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert not plain.fields, "as RocketMQ answers"


def test_a_master_that_stood_still_asks_before_it_revives(
    make: Callable[..., Bench],  # noqa: F811
) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING + "skipPreOnline=true\n", MASTER)
    slave.say(_1=SLAVE)
    holds = master.world.broker.pop.others_first
    master.world.pass_time(1_500)
    assert not holds()
    master.world.now_ms += 6_000
    assert holds(), "before it knows that it stood still"
    master.world.pass_time(1_000)
    assert holds(), "no replica follows it"
    master.world.pass_time(HELD_MS)
    assert not holds(), "not for ever"

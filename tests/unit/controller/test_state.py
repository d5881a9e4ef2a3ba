"""Tables: what events do, snapshots (C14), and events that do not fit."""

import json

import pytest
from tests.unit.controller.groups import CLUSTER, NAME, set_up

from turbopump.controller import events, state
from turbopump.controller.state import RETIRED_MAX, GroupTables


def test_c14_a_snapshot_is_the_tables() -> None:
    leader = set_up()
    leader.register(2, unclean=True)
    leader.tables.apply_event(events.ElectMaster(NAME, 3, 0, True))
    leader.tables.apply_event(events.ApplyBrokerId("d", "gone", "x", "x;1", 1))
    leader.tables.apply_event(events.CleanBrokerData("gone"))
    leader.tables.apply_event(events.ApplyBrokerId("d", "new\u00e9", "x", "x;1", 1))
    data = leader.tables.snapshot()
    again = GroupTables.restore(data)
    assert again.snapshot() == data
    assert again.groups == leader.tables.groups
    assert again.retired == leader.tables.retired
    assert again.groups[NAME].is_unfit(2)
    assert again.groups[NAME].eligible == {1, 2}


def test_a_snapshot_of_before_eligible_brokers_were_counted() -> None:
    tables = set_up().tables
    data = broken(lambda whole: whole["groups"][0].pop("eligible"))
    assert GroupTables.restore(data).groups == tables.groups


def broken(change) -> bytes:
    whole = json.loads(set_up().tables.snapshot())
    change(whole)
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2}',
        b"\xff",
        b"[" * 100_000,
        b"null",
        broken(lambda whole: whole["groups"][0].pop("members")),
        broken(lambda whole: whole["groups"][0].update(members=[9])),
        broken(lambda whole: whole["groups"][0].update(master=9)),
        broken(lambda whole: whole["groups"][0].update(eligible=[9])),
        broken(lambda whole: whole["groups"][0].update(replicas=[[1]])),
        broken(lambda whole: whole.update(retired=[["x"]])),
    ],
)
def test_invalid_snapshots(data: bytes) -> None:
    with pytest.raises(ValueError, match="the snapshot of the groups"):
        GroupTables.restore(data)


def test_events_that_do_not_fit_change_nothing() -> None:
    tables = set_up().tables
    before = tables.snapshot()
    for event in (
        events.Read(),
        events.AlterSyncStateSet("unknown", frozenset({1})),
        events.AlterSyncStateSet(NAME, frozenset({2, 3})),  # without the master
        events.ElectMaster("unknown", 1),
        events.ElectMaster(NAME, 9),
        events.CleanBrokerData("unknown"),
        events.CleanBrokerData(NAME, frozenset({9})),
        events.UpdateBrokerAddress(CLUSTER, NAME, "x", 9),
        events.MarkUnfit(NAME, 9, "unclean"),
        events.BeginMasterTerm(NAME, 9),
        events.ApplyBrokerId(CLUSTER, NAME, "x", "other;1", 2),
    ):
        tables.apply_event(event)
        assert tables.snapshot() == before, event


def test_a_later_copy_of_a_group_leaves_the_group_alone() -> None:
    tables = set_up().tables
    before = tables.snapshot()
    after = tables.groups[NAME].with_events(
        events.MarkUnfit(NAME, 2, "unclean"), events.ElectMaster(NAME, 3)
    )
    assert after.master_id == 3 and after.is_unfit(2)
    assert tables.snapshot() == before


def test_a_snapshot_equals_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoded groups are cached: each change is in the next snapshot, and only changed groups are
    encoded again. Encoding ten thousand groups at once blocked the loop for 80 ms."""
    tables = GroupTables()
    names = [f"group-{number}" for number in range(300)]
    for name in names:
        tables.apply_event(events.ApplyBrokerId(CLUSTER, name, "x", "x;1", 1))
    tables = GroupTables.restore(tables.snapshot())
    written: list[str] = []
    real = state._group_members
    monkeypatch.setattr(
        state, "_group_members", lambda group: (written.append(group.broker_name), real(group))[1]
    )
    for name in names[:20]:
        tables.apply_event(events.ElectMaster(name, 1))
    assert len(written) >= 300, "a part of the others with each event"
    tables.apply_event(events.CleanBrokerData(names[0]))
    written.clear()
    snapshot = tables.snapshot()
    assert not written
    again = json.loads(snapshot)
    assert again["groups"] == [real(tables.groups[name]) for name in sorted(names[1:])]
    assert [one[0] for one in again["retired"]] == [names[0]]


def test_remains_of_forgotten_groups_are_bounded() -> None:
    tables = GroupTables()
    for number in range(RETIRED_MAX + 3):
        tables.apply_event(events.ApplyBrokerId(CLUSTER, str(number), "x", "x;1", 1))
        tables.apply_event(events.CleanBrokerData(str(number), frozenset({1})))
    assert len(tables.retired) == RETIRED_MAX and not tables.groups
    assert (
        tables.numbers_for_new_group("0").next_id == 1
        and tables.numbers_for_new_group("5").next_id == 2
    )


def test_a_million_events_leave_a_small_snapshot() -> None:
    """R35: a start reads the tables, not their history. (The test applies 100,000 events.)"""
    tables = set_up().tables
    alter = events.AlterSyncStateSet(NAME, frozenset({1, 2}))
    for _ in range(100_000):
        tables.apply_event(alter)
    assert len(tables.snapshot()) < 1_000
    assert GroupTables.restore(tables.snapshot()).groups[NAME].set_epoch == 100_002

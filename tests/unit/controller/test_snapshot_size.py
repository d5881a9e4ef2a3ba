"""The bytes of a snapshot: the tables count them, requests are refused before a snapshot is too
long for a message, and a snapshot that is too long all the same costs only the compaction.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.groups import CLUSTER, NAME, Leader, set_up
from tests.unit.controller.test_driver import Member

from turbopump.controller import dledger_append_rules, events, registration, state
from turbopump.controller.raft import member_state
from turbopump.controller.raft.log import Base, Snapshot
from turbopump.controller.raft.messages import (
    InstallSnapshotRequest,
    encode,
    snapshot_in_steps,
)
from turbopump.controller.raft.options import SNAPSHOT_MAX
from turbopump.controller.raft.storage import RaftStorage
from turbopump.controller.state import NAME_MAX, RETIRED_MAX, SIZE_MAX, Group, GroupTables
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import ResponseCode as Code
from turbopump.net.wire.command import FRAME_MAX
from turbopump.net.wire.headers import controller as headers

ALL = st.characters() | st.sampled_from('"\\\0\x1f\x7f é主\U0001f680\ud800')
"""Every character, lone surrogates included: the log of an earlier version may have it."""
PRINTABLE = st.characters(exclude_categories=["C", "Z"], exclude_characters="#") | st.sampled_from(
    '"\\ \U0001f680'
)
LENGTHS = st.integers(1, NAME_MAX)
TEXTS = st.text(ALL, max_size=40) | st.builds(str.__mul__, ALL, LENGTHS)
NAMES = st.text(PRINTABLE, min_size=1, max_size=40) | st.builds(str.__mul__, PRINTABLE, LENGTHS)
IDS = st.integers(1, 6) | st.just((1 << 63) - 1)
EPOCHS = st.integers(0, (1 << 31) - 1)
BROKERS = st.sampled_from(["a", '"', "\\\\"])


def events_of_logs(texts: st.SearchStrategy[str]) -> st.SearchStrategy[events.Event]:
    """Any event, of a few groups, with these names, addresses and check codes."""
    members = st.frozensets(IDS)
    return st.one_of(
        st.builds(events.ApplyBrokerId, texts, BROKERS | texts, texts, texts, IDS),
        st.builds(events.UpdateBrokerAddress, texts, BROKERS, texts, IDS),
        st.builds(events.AlterSyncStateSet, BROKERS, members),
        st.builds(events.ElectMaster, BROKERS, st.none() | IDS, EPOCHS, st.booleans()),
        st.builds(events.MarkUnfit, BROKERS, IDS, st.sampled_from([state.UNCLEAN, state.DAMAGED])),
        st.builds(events.CleanBrokerData, BROKERS, st.none() | members),
    )


@given(st.lists(events_of_logs(TEXTS), max_size=30))
def test_the_size_is_never_below_the_bytes_of_the_groups(happened: list[events.Event]) -> None:
    tables = GroupTables()
    for event in happened:
        tables.apply_event(event)
        whole = json.loads(tables.snapshot())
        for group, text in zip(sorted(tables.groups), whole["groups"], strict=True):
            assert len(state._encode_json(text)) < tables.groups[group].size
        assert tables.size == sum(group.size for group in tables.groups.values())
        assert (
            len(tables.snapshot()) <= tables.size + len(state._encode_json(whole["retired"])) + 100
        )
    again = GroupTables.restore(tables.snapshot())
    assert again.size == sum(group.size for group in again.groups.values())


@given(NAMES, NAMES, NAMES)
def test_the_size_of_accepted_names(cluster: str, name: str, code: str) -> None:
    leader = Leader()
    for broker_id, one in enumerate((code, code[::-1]), 1):
        header = headers.ApplyBrokerIdRequest(cluster, name, broker_id, one)
        assert leader.take(registration.apply_id(leader.tables, header)).code == Code.SUCCESS
    assert len(leader.tables.snapshot()) <= leader.tables.size + 100
    again = GroupTables.restore(leader.tables.snapshot())
    assert again.groups == leader.tables.groups and again.size == leader.tables.size


def test_the_largest_numbers_fit() -> None:
    large = (1 << 63) - 1
    group = Group("", "", large, {}, large, large, frozenset(), large)
    for number in range(100):
        group.replicas[large - number] = state.RegisteredReplica("", "", state.DAMAGED)
    ids = list(group.replicas)
    group.members, group.eligible = frozenset(ids[:50]), frozenset(ids[50:])
    assert len(state._encode_json(state._group_members(group))) < group.size
    group.replicas.clear()
    group.members = group.eligible = frozenset()
    assert len(state._encode_json(state._group_members(group))) < group.size


WORST = ['"', "\\", "主", "\U0001f680"]


@pytest.mark.parametrize("letter", WORST)
def test_full_tables_are_written_and_read_again(letter: str, tmp_path: Path) -> None:
    """Names of quotes were counted as half of their bytes: a snapshot of 16 MiB was not kept, and
    the log grew for ever."""
    tables = GroupTables()
    for number in range(RETIRED_MAX):
        name = f"{number:04}".ljust(NAME_MAX, "\U0001f680")
        tables.apply_event(events.ApplyBrokerId(CLUSTER, name, "x", "x;1", 1))
        tables.apply_event(events.CleanBrokerData(name))
    fill(tables, letter)
    data = tables.snapshot()
    assert SIZE_MAX * 0.8 < len(data) <= SNAPSHOT_MAX
    storage = RaftStorage(RealFiles(), str(tmp_path))
    storage.open()
    storage.save_snapshot(Snapshot(Base(), data), Base(), ())
    storage.close()
    body = encode(InstallSnapshotRequest(group="g", leader_id="n1", term=3, data=data))
    assert len(body) < FRAME_MAX - (64 << 10)
    assert run_to_result(snapshot_in_steps(body)).data == data
    again = GroupTables.restore(data)
    assert (again.groups, again.retired) == (tables.groups, tables.retired)
    assert (again.size, again.snapshot()) == (tables.size, data)


def fill(tables: GroupTables, letter: str) -> None:
    """Register groups of five brokers with the longest texts of a letter until one is refused."""
    for number in range(state.GROUPS_MAX):
        name = f"{number:05}".ljust(NAME_MAX, letter)
        for broker_id in range(1, 6):
            header = headers.ApplyBrokerIdRequest(name, name, broker_id, name)
            decision = registration.apply_id(tables, header)
            if decision.code != Code.SUCCESS:
                assert "registrations together" in (decision.remark or "")
                return
            for event in decision.events:
                tables.apply_event(event)
    raise AssertionError("the tables are never full")


def test_full_tables_take_no_longer_address(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = set_up()
    monkeypatch.setattr(registration, "SIZE_MAX", 100)
    known = leader.group.replicas[2].address
    for address, expected in (
        (f"{known}0", Code.CONTROLLER_INVALID_REQUEST),
        (known, Code.SUCCESS),
        ("b:3", Code.SUCCESS),
        ("b:\\", Code.CONTROLLER_INVALID_REQUEST),
    ):
        header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, 2, address)
        decision = leader.take(registration.register(leader.tables, header, leader.live))
        assert (decision.code, bool(decision.events)) == (expected, address == "b:3"), address
    monkeypatch.setattr(registration, "SIZE_MAX", leader.tables.size)
    header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, 2, "longer:3")
    assert registration.register(leader.tables, header, leader.live).code == Code.SUCCESS


@pytest.mark.parametrize("address", ["x" * (NAME_MAX + 1), "a\n", "\0"])
def test_a_client_of_the_log_has_no_longer_address_than_a_broker(address: str) -> None:
    for one, expected in ((address, Code.CONTROLLER_INVALID_REQUEST), ("a:1", Code.SUCCESS)):
        body = events.encode([events.ApplyBrokerId(CLUSTER, NAME, one, "a:1;7", 1)])
        assert dledger_append_rules.judge_entry(GroupTables(), body).code == expected


def test_a_snapshot_that_is_too_long_leaves_the_log_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The tables of an earlier version may be too large: its members start again, report it, and
    compact the log once brokers were removed."""
    monkeypatch.setattr(member_state, "SNAPSHOT_MAX", 20)
    options: dict[str, Any] = {"snapshot_threshold": 5, "snapshot_keep": 1}
    member = Member(tmp_path, {"n0": "h:1"}, **options)
    member.lead()
    for number in range(30):
        member.driver.append(b"%03d" % number)
        member.settle()
    assert "bytes, over 20: the log is not shortened" in caplog.text
    member.storage.close()
    again = Member(tmp_path, {"n0": "h:1"}, **options)
    again.lead()
    found = [*again.machine.restored.split(b"|"), *again.machine.applied]
    assert [one for one in found if one] == [b"%03d" % number for number in range(30)]
    again.machine.snapshot = lambda: b"small"  # type: ignore[method-assign]
    for number in range(5):
        again.driver.append(b"%03d" % number)
        again.settle()
    assert again.raft.member.log.base.index > 20

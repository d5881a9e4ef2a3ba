"""Ids, registration, look-ups and cleaning: controller.md 3.3, 3.4 and vectors C11, C14."""

import pytest
from tests.unit.controller.groups import CLUSTER, NAME, Leader, running, set_up

from turbopump.controller import registration
from turbopump.controller.events import CleanBrokerData, UpdateBrokerAddress
from turbopump.controller.state import GROUPS_MAX, NAME_MAX, REPLICAS_MAX, Group, GroupTables
from turbopump.net.wire.codes import ResponseCode as Code
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.headers import controller as headers


def apply(leader: Leader, broker_id: int, code: str = "x:1;7", cluster: str = CLUSTER) -> int:
    header = headers.ApplyBrokerIdRequest(cluster, NAME, broker_id, code)
    return leader.take(registration.apply_id(leader.tables, header)).code


def test_ids_are_given_once_and_the_same_code_is_the_same_broker() -> None:
    leader = Leader()
    assert apply(leader, 2) == Code.CONTROLLER_BROKER_ID_INVALID
    assert apply(leader, 1) == Code.SUCCESS
    assert apply(leader, 1) == Code.SUCCESS
    assert apply(leader, 1, "y:1;8") == Code.CONTROLLER_BROKER_ID_INVALID
    assert apply(leader, 2, "y:1;8") == Code.SUCCESS
    assert leader.group.addresses == {1: "x:1", 2: "y:1"}
    assert leader.group.next_id == 3


def test_an_id_is_not_given_again_after_its_broker_was_forgotten() -> None:
    leader = set_up()
    leader.live.ids = set()
    leader.clean("3")
    assert apply(leader, 3) == Code.CONTROLLER_BROKER_ID_INVALID
    assert leader.join(4).code == Code.SUCCESS
    leader.clean(living=True)
    assert NAME not in leader.tables.groups
    assert apply(leader, 1) == Code.CONTROLLER_BROKER_ID_INVALID
    assert leader.register(1).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert leader.join(5).code == Code.SUCCESS
    assert leader.epochs == (1, 3)  # the group is unchanged


def test_a_name_belongs_to_one_cluster() -> None:
    leader = set_up()
    asked = headers.GetNextBrokerIdRequest("other", NAME)
    assert registration.next_id(leader.tables, asked).code == Code.CONTROLLER_INVALID_REQUEST
    assert apply(leader, 4, cluster="other") == Code.CONTROLLER_INVALID_REQUEST
    header = headers.RegisterBrokerToControllerRequest("other", NAME, 1, "a:1")
    decision = registration.register(leader.tables, header, leader.live)
    assert decision.code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


@pytest.mark.parametrize("name", ["", "a#b", "n" * (NAME_MAX + 1)])
def test_names_that_are_none(name: str) -> None:
    leader = Leader()
    for cluster, broker in ((name, NAME), (CLUSTER, name)):
        asked = headers.GetNextBrokerIdRequest(cluster, broker)
        assert registration.next_id(leader.tables, asked).code == Code.CONTROLLER_INVALID_REQUEST
        header = headers.ApplyBrokerIdRequest(cluster, broker, 1, "a;1")
        decision = registration.apply_id(leader.tables, header)
        assert decision.code == Code.CONTROLLER_INVALID_REQUEST and not decision.events
    assert apply(leader, 1, "") == Code.CONTROLLER_INVALID_REQUEST
    assert apply(leader, 1, name * 300) == Code.CONTROLLER_INVALID_REQUEST


def test_groups_and_ids_are_bounded() -> None:
    leader = Leader()
    for number in range(1, REPLICAS_MAX + 1):
        assert apply(leader, number, f"a;{number}") == Code.SUCCESS
    assert apply(leader, REPLICAS_MAX + 1, "a;new") == Code.CONTROLLER_BROKER_ID_INVALID
    tables = GroupTables()
    for number in range(GROUPS_MAX):
        tables.groups[str(number)] = Group(CLUSTER, str(number))
    header = headers.ApplyBrokerIdRequest(CLUSTER, "new", 1, "a;1")
    assert registration.apply_id(tables, header).code == Code.CONTROLLER_INVALID_REQUEST


def test_registered_names_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    monkeypatch.setattr(registration, "SIZE_MAX", 100_000)
    taken = 0
    for number in range(300):
        name = f"{number:03d}".ljust(NAME_MAX, "主")
        header = headers.ApplyBrokerIdRequest(name, name, 1, name)
        decision = leader.take(registration.apply_id(leader.tables, header))
        taken += decision.code == Code.SUCCESS
    assert 20 < taken < 40
    assert len(leader.tables.snapshot()) <= leader.tables.size < 110_000
    for text in ("a\n", "\0", "a\x1b"):
        for names in ((text, "b", "a;1"), ("c", text, "a;1"), ("c", "b", text)):
            header = headers.ApplyBrokerIdRequest(names[0], names[1], 1, names[2])
            decision = registration.apply_id(GroupTables(), header)
            assert decision.code == Code.CONTROLLER_INVALID_REQUEST and not decision.events


def test_registration_names_a_living_master_only() -> None:
    leader = set_up()
    decision = leader.register(2)
    assert (decision.header.master_broker_id, decision.header.master_address) == (1, "a:1")
    assert (decision.header.master_epoch, decision.header.sync_state_set_epoch) == (1, 2)
    leader.live.ids = {2, 3}
    decision = leader.register(2)
    assert decision.header.master_broker_id is None and decision.header.master_epoch is None
    assert SyncStateSet.decode(decision.body) == SyncStateSet(frozenset({1, 2, 3}), 2)


def test_a_broker_moves_to_another_address() -> None:
    leader = set_up()
    header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, 2, "moved:1")
    decision = leader.take(registration.register(leader.tables, header, leader.live))
    assert decision.events == (UpdateBrokerAddress(CLUSTER, NAME, "moved:1", 2),)
    assert leader.group.addresses[2] == "moved:1"
    assert not leader.take(registration.register(leader.tables, header, leader.live)).events


def test_a_master_that_was_restarted_before_anybody_noticed_gets_an_epoch_of_its_own() -> None:
    leader = set_up()
    header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, 1, "moved:1")
    decision = leader.take(registration.register(leader.tables, header, leader.live))
    assert (decision.header.master_broker_id, decision.header.master_address) == (1, "moved:1")
    assert (decision.header.master_epoch, decision.header.sync_state_set_epoch) == (2, 3)
    assert leader.group.members == {1} and leader.group.master_address == "moved:1"
    assert SyncStateSet.decode(decision.body) == SyncStateSet(frozenset({1}), 3)


def test_an_address_that_is_none() -> None:
    leader = set_up()
    header = headers.RegisterBrokerToControllerRequest(CLUSTER, NAME, 1, "")
    decision = registration.register(leader.tables, header, leader.live)
    assert decision.code == Code.CONTROLLER_INVALID_REQUEST


def test_unknown_groups() -> None:
    leader = Leader()
    decision = registration.replica_info(leader.tables, headers.GetReplicaInfoRequest(NAME))
    assert (decision.code, decision.remark) == (
        Code.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        "Broker metadata is not existed",
    )
    decision = leader.register(1)
    assert decision.remark == f"Broker-set: {NAME} hasn't been registered in controller"


def test_c11_cleaning() -> None:
    leader = set_up()
    decision = leader.clean("1")
    assert decision.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert decision.remark == f"Broker [{NAME},  1] is still alive, clean up failure"
    decision = leader.clean()
    assert decision.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert decision.remark == f"Broker {NAME} is still alive, clean up failure"
    leader.live.ids = set()
    assert leader.clean("1").code == Code.SUCCESS
    leader = set_up()
    leader.live.ids = set()
    assert leader.clean("1;2;3").code == Code.SUCCESS
    assert NAME not in leader.tables.groups
    decision = leader.clean(living=True, name="unknown")
    assert decision.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert decision.remark == "Broker unknown is not existed,clean broker data failure."


def test_cleaning_forgets_only_the_named_broker() -> None:
    """RocketMQ removes the whole group if live brokers may be cleaned."""
    leader = set_up()
    decision = leader.clean("2", living=True)
    assert decision.events == (CleanBrokerData(NAME, frozenset({2})),)
    assert set(leader.group.replicas) == {1, 3} and leader.group.members == {1, 3}
    assert leader.group.set_epoch == 3
    assert leader.clean("1", living=True).code == Code.SUCCESS
    assert leader.group.master_id is None and leader.group.master_epoch == 2


@pytest.mark.parametrize("ids", ["x", "1;x", "-1", "1,2", "9" * 30, "¹"])
def test_ids_to_clean_that_are_none(ids: str) -> None:
    leader = set_up()
    assert leader.clean(ids, living=True).code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA


def test_cleaning_an_absent_broker_changes_nothing() -> None:
    leader = set_up()
    decision = leader.clean("9;8")
    assert decision.code == Code.SUCCESS and not decision.events
    decision = leader.take(
        registration.decide_clean(
            leader.tables, headers.CleanBrokerDataRequest(NAME, "other", None, True), leader.live
        )
    )
    assert decision.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA


@pytest.mark.parametrize("word", ["unclean", "damaged"])
def test_a_doubt_that_is_repeated_adds_no_entry(word: str) -> None:
    """A broker that registered again every half second would write an entry and a set each time."""
    node = running()
    node.register(2, life=7, **{word: True})
    entries, set_epoch = len(node.quorum.entries), node.group.set_epoch
    for _ in range(3):
        assert node.register(2, life=7, **{word: True}).code == 0
    assert (len(node.quorum.entries), node.group.set_epoch) == (entries, set_epoch)
    # The broker's next process may have lost bytes that its master had counted.
    node.register(2, life=8, **{word: True})
    assert (len(node.quorum.entries), node.group.set_epoch) == (entries + 1, set_epoch + 1)
    # The same holds for a broker that was in the set again.
    node.beat(2)
    assert node.alter(1, 2, 3).code == 0
    node.register(2, life=8, **{word: True})
    assert node.group.is_unfit(2)

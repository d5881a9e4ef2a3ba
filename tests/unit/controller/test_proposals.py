"""Proposals, one at a time: they wait, fail, are lost with the lead or come from other members."""

from tests.unit.controller.groups import CLUSTER, NAME, Done, Entry, Refused, running
from tests.unit.controller.test_core import NOT_LEADER

from turbopump.controller import events
from turbopump.controller.proposals import WAITING_MAX
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.headers import controller as headers


def test_one_proposal_at_a_time_each_decided_on_applied_state() -> None:
    node = running()
    node.auto = False
    group = node.group
    shrink = headers.AlterSyncStateSetRequest(NAME, 1, group.master_epoch)
    first = node.ask(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        shrink,
        SyncStateSet(frozenset({1, 2}), group.set_epoch).encode(),
    )
    second = node.ask(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        shrink,
        SyncStateSet(frozenset({1}), group.set_epoch).encode(),
    )
    assert not first.done and not second.done and len(node.quorum.waiting) == 1
    entry, later = node.quorum.waiting.pop(0)
    later.resolve(Done(entry.index))
    assert not first.done  # committed, and not applied yet
    node.core.on_applied(entry)
    assert first.value.code == 0
    assert second.value.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert node.group.members == {1, 2}


def test_a_failed_proposal_may_still_commit_so_nothing_is_decided_before_that_is_known() -> None:
    node = running()
    node.auto = False
    node.close(1)
    lost = node.quorum.waiting.pop(0)
    lost[1].resolve(Refused("no majority answered in time"))
    node.tick(20)
    barrier = node.quorum.waiting[0][0]
    assert barrier.body == b""
    asked = headers.ElectMasterRequest(NAME, CLUSTER, 2)
    response = node.ask(RequestCode.CONTROLLER_ELECT_MASTER, asked, connection=2)
    assert not response.done
    assert node.beat(2).lease_ms is None
    node.core.on_applied(lost[0])
    node.commit()
    assert response.value.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert (node.group.master_id, node.group.master_epoch) == (2, 2)


def test_a_refused_proposal_is_tried_again_by_the_next_tick() -> None:
    node = running()
    node.quorum.refuse = "the leadership is handed over"
    node.close(1)
    node.tick(500)
    assert node.group.master_id == 1
    node.quorum.refuse = ""
    node.tick(500)
    assert node.group.master_id == 2


def test_the_lead_is_lost_with_requests_waiting() -> None:
    node = running()
    node.auto = False
    asked = headers.GetNextBrokerIdRequest(CLUSTER, "x")
    apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 4, "a:4;1")
    flying = node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    waiting = node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
    node.lead(False)
    assert flying.value.code == waiting.value.code == NOT_LEADER
    assert node.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, asked).value.code == NOT_LEADER
    node.commit()  # it commits all the same; no broker is notified twice
    assert 4 in node.group.replicas


def test_proposals_that_wait_too_long_are_reported_and_too_many_are_refused() -> None:
    node = running()
    node.auto = False
    apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, 4, "a:4;1")
    responses = [
        node.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply) for _ in range(WAITING_MAX + 2)
    ]
    assert responses[-1].value.code == ResponseCode.SYSTEM_BUSY
    assert not responses[-2].done
    node.tick(5_000)
    assert not responses[0].done  # under way
    assert responses[1].value.code == ResponseCode.SYSTEM_ERROR
    node.commit()
    assert responses[0].value.code == 0


def test_entries_that_say_nothing_are_passed_over() -> None:
    node = running()
    before = node.core.snapshot()
    for index, body in enumerate((b"", b"x", b"\x00\x63{}", b"\x00\x01[", b"\x00\x64{}"), 100):
        node.core.on_applied(Entry(index, 1, body))
    assert node.core.snapshot() == before and node.core.applied == 104


def test_entries_others_may_append() -> None:
    node = running()

    def outcome(*happened: events.Event, body: bytes = b"") -> int | str:
        result = node.core.append(body or events.encode(happened), node.now_ms)
        node.commit()
        return result.value

    assert outcome(events.ApplyBrokerId("C", "other", "h:1", "h:1;1", 1)) == node.core.applied
    assert node.core.tables.groups["other"].replicas[1].check_code == "h:1;1"
    again = outcome(events.ApplyBrokerId("C", "other", "h:2", "h:2;1", 1))
    assert "Fail to apply brokerId" in str(again)  # an id has one broker
    assert outcome(events.CleanBrokerData("nobody")) == node.core.applied
    before = node.core.snapshot()
    for event in (
        events.CleanBrokerData(NAME),
        events.ElectMaster(NAME, 2),
        events.AlterSyncStateSet(NAME, frozenset({2})),
    ):
        assert "only made by a request" in str(outcome(event))
    assert "a read" in str(outcome(events.Read()))
    assert "only made by a controller" in str(outcome(events.MarkUnfit(NAME, 1, "x")))
    assert "type 26725" in str(outcome(body=b"he{}"))
    assert node.core.snapshot() == before

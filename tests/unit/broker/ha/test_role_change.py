"""A role changes with a slow disk: the loop goes on, and the broker reports or accepts nothing
before the data it relies on is durable."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.ha.elected import CLUSTER, CODES, NAME, TIMEOUT_MS, Make, pair, word
from tests.unit.broker.ha.network import Broker, Group
from tests.unit.broker.ha.test_service import PAIR, options

from turbopump.broker.ha.control.membership import CHANGE_MAX_MS
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.ha.service import Overtaken
from turbopump.engine.log.epochs import EpochEntry
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.ha.replica import State
from turbopump.net.wire.headers import controller as headers


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path)
    yield found
    for broker in found.brokers.values():
        broker.disk.release()
    found.close()


def epochs(broker: Broker) -> list[int]:
    return [entry.epoch for entry in broker.log.epochs]


# The service


def test_a_term_begins_once_its_epoch_is_durable(group: Group) -> None:
    one = group.add(1, options(1))
    one.disk.hold()
    result = one.service.to_master(1, PAIR, 1)
    group.settle(1000)
    assert not result.done
    assert not one.service.is_master
    assert epochs(one) == []
    assert one.put().status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "epoch 1 is being written to the disk" in str(one.service.status().follower)
    one.disk.release()
    assert result.value is None
    assert one.service.is_master
    assert epochs(one) == [1]
    assert one.put().status is PutStatus.PUT_OK


def test_a_master_named_again_takes_nothing_between_its_terms(group: Group) -> None:
    one = group.add(1, options(1))
    one.service.to_master(1, PAIR, 1)
    one.disk.hold()
    one.service.to_master(2, PAIR, 2)
    assert not one.service.is_master
    assert one.put().status is PutStatus.SERVICE_NOT_AVAILABLE
    one.disk.release()
    assert (one.service.epoch, epochs(one)) == (2, [1, 2])


def test_another_master_overtakes_a_term_that_did_not_begin(group: Group) -> None:
    """The epoch is in the list by then, without any bytes: the next role must notice it."""
    one, two = group.add(1, options(1)), group.add(2, options(2))
    two.disk.hold()
    result = two.service.to_master(1, PAIR, 1)
    one.service.to_master(2, PAIR, 2)
    one.put(b"of the second epoch")
    two.service.to_replica(one.address, 2)
    group.settle(500)
    assert two.service.follower is not None
    assert two.service.follower.machine.state is State.READY, "it has sent nothing yet"
    two.disk.release()
    assert isinstance(result.value, Overtaken)
    assert not two.service.is_master
    group.settle(1000)
    assert two.log_bytes() == one.log_bytes()
    assert two.log.epochs.entries[-1] == EpochEntry(2, LogOffset(0))  # type: ignore[arg-type]


def test_a_later_term_of_its_own_overtakes(group: Group) -> None:
    one = group.add(1, options(1))
    one.disk.hold()
    first = one.service.to_master(1, PAIR, 1)
    second = one.service.to_master(3, PAIR, 2)
    one.disk.release()
    assert isinstance(first.value, Overtaken)
    assert second.value is None
    assert (one.service.epoch, epochs(one)) == (3, [1, 3])


def test_a_stop_comes_between(group: Group) -> None:
    one = group.add(1, options(1))
    one.disk.hold()
    result = one.service.to_master(1, PAIR, 1)
    group.brokers.pop(1).stop()
    assert isinstance(result.value, Overtaken)
    assert not one.service.is_master
    again = group.add(1, options(1))
    assert epochs(again) == [1], "closed in the midst of it: the list is one or the other"


def test_a_disk_that_fails_makes_no_master(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    one = group.add(1, options(1))

    def fails(*_: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(one.log._kept.file, "_write_line", fails)
    result = one.service.to_master(1, PAIR, 1)
    assert "epoch 1 cannot be recorded" in str(result.value)
    assert not one.service.is_master
    assert epochs(one) == []


# A replica


def test_a_replica_reads_nothing_while_its_epochs_are_written(group: Group) -> None:
    one, two = group.add(1, options(1)), group.add(2, options(2))
    one.service.to_master(1, PAIR, 1)
    one.put(b"first")
    two.service.to_replica(one.address, 1)
    two.disk.hold()
    group.settle(300)
    assert two.log.end == 0, "nothing is written before the marks and the epoch are"
    two.disk.release()
    group.settle(300)
    assert two.log_bytes() == one.log_bytes()
    # A new epoch on the next connection, while the disk is slow.
    one.disk.hold()
    two.disk.hold()
    one.service.to_master(2, PAIR, 2)
    one.disk.release()
    one.put(b"second")
    two.service.to_replica(one.address, 2)
    group.settle(1500)
    assert epochs(two) == [1]
    assert two.log.end < one.log.end
    two.disk.release()
    group.settle(300)
    assert epochs(two) == [1, 2]
    assert two.log_bytes() == one.log_bytes()


def test_a_replica_whose_list_is_not_written_begins_anew(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = group.add(1, options(1)), group.add(2, options(2))
    one.service.to_master(1, PAIR, 1)
    one.put(b"first")

    def fails(*_: object) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as trouble:
        trouble.setattr(two.log._kept.file, "_write_line", fails)
        two.service.to_replica(one.address, 1)
        group.settle(300)
        assert two.log.end == 0
    group.settle(10_000)
    assert two.log_bytes() == one.log_bytes()


# A member of a group with controllers


def test_heartbeats_go_on_while_an_epoch_is_written(make: Make) -> None:
    """If each sync blocked the loop, at 3 s a sync a master was taken for dead as soon as it was
    elected, then the next master, and so on forever."""
    _one, two = pair(make)
    two.broker.disk.hold()
    two.membership.on_notice(word(2, 2, set_epoch=3))
    two.script.beats.clear()
    two.pass_time(2 * TIMEOUT_MS)
    assert len(two.script.beats) >= 2 * 2 * TIMEOUT_MS // 1000 - 2, "to both controllers"
    assert not two.broker.service.is_master
    # the same notice again: the broker is becoming master already
    two.membership.on_notice(word(2, 2, set_epoch=3))
    two.membership.on_notice(word(2, 2, {1, 2}, set_epoch=4))
    two.broker.disk.release()
    two.pass_time()
    assert two.broker.service.is_master
    assert two.membership.has_lease()
    assert two.membership.reason_without_role == ""
    term = two.broker.service.term
    assert term is not None
    assert term.sync.set_epoch == 4, "the newest word counts"  # type: ignore[attr-defined]


def test_a_later_word_while_an_epoch_is_written(make: Make) -> None:
    one, two = pair(make)
    two.broker.disk.hold()
    two.membership.on_notice(word(2, 2, set_epoch=3))
    one.membership.on_notice(word(3, 1, set_epoch=4))
    two.membership.on_notice(word(3, 1, set_epoch=4))
    two.broker.disk.release()
    two.ha_info(one.broker.address)
    two.pass_time(500)
    assert not two.broker.service.is_master
    assert two.broker.service.follower is not None
    assert two.broker.service.follower.machine.state is State.TRANSFER
    assert two.broker.log.epochs == one.broker.log.epochs


def test_a_disk_that_hangs_is_given_up(make: Make) -> None:
    _one, two = pair(make)
    two.broker.disk.hold()
    two.membership.on_notice(word(2, 2, set_epoch=3))
    two.pass_time(CHANGE_MAX_MS + 200)
    assert two.membership.reason_without_role == "the epoch was not written to the disk in time"
    two.script.beats.clear()
    two.pass_time(1000)
    assert {one.fields["unfit"] for one in two.script.beats} == {"failed"}, "another leads"


def test_heartbeats_go_on_while_a_doubt_is_written_down(make: Make) -> None:
    """If the three syncs blocked the loop after the registration, at 3 s each they would last
    longer than a silent broker counts as alive."""
    member = make(last_life=PreviousShutdown(confirmed=LogOffset(1 << 40)))
    written: list[int] = []
    member.membership.registration._on_doubt_reported = lambda: written.append(1)
    member.start()
    member.give_id(1)
    member.broker.disk.hold()
    member.registered()
    assert written == []
    member.pass_time(1000)
    before = len(member.script.beats)
    member.pass_time(TIMEOUT_MS)
    assert len(member.script.beats) - before >= TIMEOUT_MS // 1000
    member.broker.disk.release()
    assert written == [1]


def test_an_id_is_asked_for_once_it_is_written_down(make: Make) -> None:
    member = make()
    member.broker.disk.hold()
    member.start()
    asked = member.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID)
    asked.answer(headers.GetNextBrokerIdResponse(CLUSTER, NAME, 7))
    assert CODES.CONTROLLER_APPLY_BROKER_ID not in member.script.codes()
    member.broker.disk.release()
    assert CODES.CONTROLLER_APPLY_BROKER_ID in member.script.codes()

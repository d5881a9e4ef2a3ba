"""Sends of a master that has replicas, and of a replica."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.handlers.test_send import BATCH, V2, element, header
from tests.unit.broker.replicas import SYNC_MASTER, Replicas

from turbopump.broker.scheduled.delay import FILE_NAME as DELAY_FILE
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import ConsumerSendMsgBackRequest

SYNC_FLUSH = f"{SYNC_MASTER}flushDiskType=SYNC_FLUSH\n"
Make = Callable[..., World]


def send(world: World, body: bytes = b"x", code: int = V2, **changed: Any) -> Deferred[Command]:
    """Dispatch a send; its response may come later."""
    return later(world.dispatch(new_request(code, header(code, **changed), body)))


def later(response: Command | Deferred[Command]) -> Deferred[Command]:
    if isinstance(response, Deferred):
        return response
    done: Deferred[Command] = Deferred()
    done.resolve(response)
    return done


@pytest.mark.parametrize(("code", "body"), [(V2, b"x"), (BATCH, element(b"1") + element(b"2"))])
def test_answered_when_the_replica_has_it(make_world: Make, code: int, body: bytes) -> None:
    world = make_world(SYNC_MASTER)
    replicas = Replicas(world)
    response = send(world, body, code)
    assert not response.done
    replicas.ack()
    assert response.value.code == ResponseCode.SUCCESS


def test_answered_when_the_disk_has_it_too(make_world: Make) -> None:
    world = make_world(SYNC_FLUSH)
    replicas = Replicas(world)
    world.disk.hold()
    response = send(world)
    replicas.ack()
    assert not response.done
    world.disk.release()
    replicas.ack()
    assert response.value.code == ResponseCode.SUCCESS


def test_replica_that_takes_too_long_counts_more_than_the_disk(make_world: Make) -> None:
    world = make_world(f"{SYNC_FLUSH}slaveTimeout=700\nsyncFlushTimeout=500\n")
    replicas = Replicas(world)
    world.disk.hold()
    response = send(world)
    world.pass_time(600)
    assert not response.done, "the replica may still come"
    world.pass_time(100)
    assert response.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert response.value.fields["queueOffset"] == "0", "it is stored all the same"
    world.disk.release()
    replicas.ack()


def test_a_send_without_a_wait_is_answered_at_once(make_world: Make) -> None:
    world = make_world(SYNC_MASTER)
    Replicas(world).too_few(True)
    response = send(world, properties={"WAIT": "false"})
    assert response.value.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("code", "body"), [(V2, b"x"), (BATCH, element(b"1"))])
def test_too_few_in_sync_and_nothing_is_written(make_world: Make, code: int, body: bytes) -> None:
    world = make_world(SYNC_MASTER)
    replicas = Replicas(world)
    replicas.too_few(True)
    end = world.broker.store.max_log_offset
    response = send(world, body, code).value
    assert (response.code, response.remark) == (1, "in-sync replicas not enough")
    assert world.broker.store.max_log_offset == end
    replicas.too_few(False)
    assert not send(world, body, code).done


def test_end_of_a_term_claims_nothing(make_world: Make) -> None:
    world = make_world(SYNC_MASTER)
    replicas = Replicas(world)
    response = send(world)
    replicas.end()
    assert response.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "msgId" not in response.value.fields
    assert send(world).value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    replicas.begin()
    again = send(world)
    replicas.ack()
    assert again.value.code == ResponseCode.SUCCESS


def test_a_term_that_ends_within_an_append_claims_nothing(make_world: Make) -> None:
    world = make_world(SYNC_MASTER)
    replicas = Replicas(world)
    replicas.log.on_appended.append(replicas.end)
    assert send(world).value.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_an_async_master_waits_for_no_replica(make_world: Make) -> None:
    world = make_world("haListenPort=10912\n")
    Replicas(world)
    assert send(world).value.code == ResponseCode.SUCCESS


def test_a_retry_is_as_safe_as_its_message_was(make_world: Make) -> None:
    world = make_world(SYNC_MASTER)
    replicas = Replicas(world)
    first = send(world)
    replicas.ack()
    assert first.value.code == ResponseCode.SUCCESS
    unit = world.broker.store.units("T", 1, 0, 1)[0]
    back = ConsumerSendMsgBackRequest(unit.log_offset, "G", 0)
    response = later(world.dispatch(new_request(RequestCode.CONSUMER_SEND_MSG_BACK, back)))
    assert not response.done
    replicas.ack()
    assert response.value.code == ResponseCode.SUCCESS


def test_delayed_messages_wait_for_a_master_that_may_write(make_world: Make) -> None:
    world = make_world(SYNC_FLUSH)
    replicas = Replicas(world)
    send(world, properties={"DELAY": "1"})
    replicas.ack()
    replicas.too_few(True)
    world.pass_time(2_000)
    assert world.broker.store.max_queue_offset("T", 1) == 0
    replicas.too_few(False)
    world.pass_time(100)
    assert world.broker.store.max_queue_offset("T", 1) == 1
    world.broker.delay.begin_save()
    assert world.broker.delay.take_unsaved_content() is None, "the replica lacks the delivery"
    replicas.ack()
    assert world.broker.delay.take_unsaved_content() is not None, DELAY_FILE


def test_a_replica_refuses_and_creates_nothing(make_world: Make) -> None:
    world = make_world("brokerRole=SLAVE\nbrokerId=1\n")
    response = send(world).value
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert response.remark is not None
    assert response.remark.startswith("[REJECTREQUEST]")
    assert world.broker.topics.get("T") is None
    back = ConsumerSendMsgBackRequest(0, "G", 0)
    assert world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SYSTEM_BUSY

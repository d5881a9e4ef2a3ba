"""The checks that pop requests share, in RocketMQ's order and with its texts.

Owns the refusals of PopMessageProcessor, NotificationProcessor and AckMessageProcessor: each check
raises PopRefused, or returns. It must never pop.

Tests: tests/unit/broker/handlers/pop/test_pops.py, tests/unit/broker/pop/test_hostile.py
"""

from turbopump.broker.context import BrokerContext
from turbopump.broker.traffic.replies import REJECTED, SEE_FAQ
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.names import validate_group_name
from turbopump.net.wire.pop_handles import BadHandle, PopHandle
from turbopump.net.wire.topics import TopicConfig

POLL_LATE_MS = 500
"""Tolerance in ms: a poll that arrives later than this after its end (birth time + poll time) is
refused (PopMessageRequestHeader)."""


class PopRefused(Exception):
    """A request is answered with an error, `code` and `remark`, before anything is read."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def check_pops(broker: BrokerContext, *, in_order: bool = False) -> None:
    """Raise PopRefused on a replica: its offsets and check points are its master's. A replica that
    acts as master may serve pops, but not ordered pops (`in_order`): only records of the log show
    which messages of an ordered queue are held by a consumer."""
    role = broker.role
    if not (role.is_master and role.is_known) and (in_order or not broker.pop.is_acting):
        raise PopRefused(ResponseCode.SYSTEM_BUSY, REJECTED)


def check_readable(broker: BrokerContext) -> None:
    """Raise PopRefused if brokerPermission does not allow reading."""
    if not broker.config.is_readable:
        raise PopRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] pop message is forbidden",
        )


def topic_for_pop(broker: BrokerContext, name: str, queue_id: int, peer: Peer) -> TopicConfig:
    """Return the topic's configuration; raises PopRefused if the topic does not exist or is not
    readable, or has no read queue `queue_id` (-1: any queue)."""
    topic = broker.topics.get(name)
    if topic is None:
        raise PopRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {SEE_FAQ}"
        )
    if not topic.is_readable:
        raise PopRefused(
            ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
        )
    if not -1 <= queue_id < topic.read_queue_nums:
        raise PopRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:"
            f"[{topic.read_queue_nums}] consumer:[/{peer.address}]",
        )
    return topic


def check_group(broker: BrokerContext, name: str, now_ms: int) -> None:
    """Raise PopRefused if consumeEnable of the group is false, or the group does not exist and is
    not created; it is created now if autoCreateSubscriptionGroup allows it. `now_ms` is epoch
    ms."""
    group = broker.groups.find_or_create(name, now_ms)
    if group is None:
        raise PopRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist, {SEE_FAQ}",
        )
    if not group.consume_enable:
        raise PopRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")


def check_group_name(name: str) -> None:
    """Raise PopRefused for an invalid group name, which an acknowledgement would write into
    records. The group itself may be deleted already."""
    wrong = validate_group_name(name)
    if wrong is not None:
        raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, wrong)


def check_poll(born_ms: int, poll_ms: int, now_ms: int) -> int:
    """Return the time until which the client waits, `born_ms` + `poll_ms`; all times are epoch ms.
    Raises PopRefused if that is more than POLL_LATE_MS ago. A birth time that is missing (0) or in
    the future counts as now: such a request without a poll time does not wait."""
    born_ms = min(born_ms or now_ms, now_ms)
    if now_ms - born_ms - poll_ms > POLL_LATE_MS:
        raise PopRefused(ResponseCode.POLLING_TIMEOUT, "the broker pop message is timeout.")
    return born_ms + poll_ms


def check_queue(broker: BrokerContext, name: str, queue_id: int, peer: Peer) -> None:
    """Raise PopRefused if the topic does not exist or has no read queue `queue_id`."""
    topic = broker.topics.get(name)
    if topic is None:
        raise PopRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {SEE_FAQ}"
        )
    if not 0 <= queue_id < topic.read_queue_nums:
        raise PopRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId{queue_id} is illegal, topic:[{name}] topicConfig.readQueueNums:"
            f"[{topic.read_queue_nums}] consumer:[/{peer.address}]",
        )


def handle_of(text: str, broker: BrokerContext) -> PopHandle:
    """Decode a receipt handle from its text; raises PopRefused if it is malformed or names a revive
    queue that this broker does not have."""
    try:
        handle = PopHandle.parse(text)
    except BadHandle as error:
        raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
    queues = broker.pop.log.queue_count()
    if not handle.is_ordered and handle.revive_queue_id >= queues:
        raise PopRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the handle has revive queue {handle.revive_queue_id}, but there are {queues}",
        )
    return handle

"""What pop requests of all kinds are checked for, in RocketMQ's order and words.

Owns the refusals of PopMessageProcessor, NotificationProcessor and AckMessageProcessor. It must
never pop. Called by the other modules of this folder.
"""

from turbopump.broker.context import BrokerContext
from turbopump.broker.traffic.replies import REJECTED, SEE_FAQ
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.names import validate_group_name
from turbopump.net.wire.pop_handles import BadHandle, PopHandle
from turbopump.net.wire.topics import TopicConfig

POLL_LATE_MS = 500
"""A poll that arrives so long after its time is over is not begun (PopMessageRequestHeader)."""


class PopRefused(Exception):
    """A request that is answered with an error before anything is looked at."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def check_pops(broker: BrokerContext, *, in_order: bool = False) -> None:
    """A replica hands nothing out: its offsets and check points are its master's. One that acts
    does, but not in order: what is out of an ordered queue is known by records of the log alone."""
    role = broker.role
    if not (role.is_master and role.is_known) and (in_order or not broker.pop.acts):
        raise PopRefused(ResponseCode.SYSTEM_BUSY, REJECTED)


def check_readable(broker: BrokerContext) -> None:
    """brokerPermission allows reading."""
    if not broker.config.readable:
        raise PopRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] pop message is forbidden",
        )


def check_topic(broker: BrokerContext, name: str, queue_id: int, peer: Peer) -> TopicConfig:
    """The topic, if the queue (-1: any) can be read."""
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
    """The group, made where groups make themselves, may consume."""
    group = broker.groups.find(name, now_ms)
    if group is None:
        raise PopRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist, {SEE_FAQ}",
        )
    if not group.consume_enable:
        raise PopRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")


def check_group_name(name: str) -> None:
    """An acknowledgement's group, which need not be there (any more): a name that no group has
    would go into records all the same."""
    wrong = validate_group_name(name)
    if wrong is not None:
        raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, wrong)


def check_poll(born_ms: int, poll_ms: int, now_ms: int) -> int:
    """Until when the client waits, in epoch ms. A request without a birth is born now, and so is a
    request of a client whose clock is ahead: without a poll time it waits for nothing."""
    born_ms = min(born_ms or now_ms, now_ms)
    if now_ms - born_ms - poll_ms > POLL_LATE_MS:
        raise PopRefused(ResponseCode.POLLING_TIMEOUT, "the broker pop message is timeout.")
    return born_ms + poll_ms


def check_queue(broker: BrokerContext, name: str, queue_id: int, peer: Peer) -> None:
    """The queue that an acknowledged message lies in."""
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
    """The handle, if this broker can have given it."""
    try:
        handle = PopHandle.parse(text)
    except BadHandle as error:
        raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
    queues = broker.pop.log.queue_count()
    if not handle.is_ordered and handle.revive_queue_id >= queues:
        raise PopRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a handle of revive queue {handle.revive_queue_id}, there are {queues}",
        )
    return handle

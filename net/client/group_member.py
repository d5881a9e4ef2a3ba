"""A consumer of a group in the form that its client instance needs.

Owns the member's part of a heartbeat, and the refusal of brokers' requests that concern consumers
with queues of their own. It must never pull, pop or acknowledge a message.

Tests: tests/unit/net/client/consuming/test_balancer.py
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from turbopump.net.client.options import ConsumeFrom, MessageModel
from turbopump.net.transport.dispatcher import Response
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.subscription import SubscriptionData


def ignore_wake() -> None:
    """Do nothing: the `wake` of a consumer whose queues are not divided."""


def make_refuser(kind: str) -> Callable[[Command, int], Response]:
    """A `response` for a GroupMember without divided queues: it answers every request SYSTEM_ERROR
    with "this is a `kind` consumer"."""

    def refuse(request: Command, _now_ms: int) -> Response:
        return new_response(request, ResponseCode.SYSTEM_ERROR, f"this is a {kind} consumer")

    return refuse


@dataclass(slots=True, frozen=True)
class GroupMember:
    """A consumer as its instance knows it.

    `subscriptions`: by topic; the consumer changes this table while it runs. `consume_type`:
    CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP of net/wire/heartbeat.py.
    `answer(request, now_ms)`: answers 220 (reset offsets), 221 (offsets), 307 (running info) or 309
    (consume a message) from a broker, at once or by a Deferred; `now_ms` is in epoch milliseconds.
    `wake`: called on the loop, must not block, when the members of the group or the readable queues
    of its topics changed.
    """

    group: str
    subscriptions: Mapping[str, SubscriptionData]
    consume_type: str
    answer: Callable[[Command, int], Response]
    wake: Callable[[], None] = ignore_wake
    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST

    def heartbeat_data(self) -> ConsumerData:
        """The group's part of a heartbeat, with the subscriptions of this moment."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.model.value,
            consume_from_where=self.consume_from.value,
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> Collection[str]:
        """The subscribed topics, whose routes the member needs: a live view."""
        return self.subscriptions.keys()

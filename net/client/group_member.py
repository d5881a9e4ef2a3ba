"""A consumer of a group in the form that its client instance needs.

Owns the member's part of a heartbeat, and the refusal of brokers' requests that concern consumers
with queues of their own. It must never pull, pop or acknowledge a message.

Tests: tests/unit/net/client/consuming/test_balancer.py
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from turbopump.net.client.options import ConsumeFrom, MessageModel
from turbopump.net.transport.dispatcher import Answer
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.subscription import SubscriptionData


def stay() -> None:
    """The reaction of a consumer without divided queues to a change of the group's members."""


def refusal(kind: str) -> Callable[[Command, int], Answer]:
    """The answer of a consumer of this kind to requests about consumers with divided queues."""

    def refuse(request: Command, _now_ms: int) -> Answer:
        return response(request, ResponseCode.SYSTEM_ERROR, f"this is a {kind} consumer")

    return refuse


@dataclass(slots=True, frozen=True)
class GroupMember:
    """A consumer as its instance knows it.

    `subscriptions`: by topic; the consumer changes this table while it runs. `consume_type`: one of
    the three of net/wire/heartbeat.py. `answer(request, now_ms)`: answers 220, 221, 307 or 309 from
    a broker. `wake`: called when the members of the group or a route of its topics changed.
    """

    group: str
    subscriptions: Mapping[str, SubscriptionData]
    consume_type: str
    answer: Callable[[Command, int], Answer]
    wake: Callable[[], None] = stay
    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST

    def heartbeat_data(self) -> ConsumerData:
        """The group's part of a heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.model.value,
            consume_from_where=self.consume_from.value,
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> Collection[str]:
        """The topics whose routes the member needs."""
        return self.subscriptions.keys()

"""An operator that deletes topics and groups with their offsets, and changes the number of queues
of a topic.

Owns the choice of seeds that have an operator, its requests and its random generator, so that seeds
without it replay as before; also the knowledge of the last deletion at each broker. It must never
decide which messages are still expected: the suite does.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from turbopump.broker.context import BrokerContext
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.admin import DeleteSubscriptionGroupRequest, DeleteTopicRequest

SHARE: Final = 0.3
"""Fraction of the seeds with an operator."""
REMADE_FROM: Final = 1_000
"""First seed from which the suites of acting replicas have an operator in each seed."""
Life = tuple[int, int]
"""Times of the last deletions of the topic and the group, in epoch ms; 0: never."""


class Remake(Enum):
    """An act of the operator."""

    TOPIC = auto()
    """Deletes the topic: the next send makes it again."""
    GROUP = auto()
    """Deletes the group with its offsets: the next pop makes it again."""
    QUEUES = auto()
    """The topic has one queue, or all that it had before, whether it is there or not."""


class Remakes:
    """All remakes of a seed."""

    def __init__(
        self,
        seed: int,
        salt: int,
        topic: str,
        group: str,
        queues: int = 2,
        share: float = SHARE,
    ) -> None:
        self.rng: Final = random.Random(seed ^ salt)
        self.is_on: Final = self.rng.random() < share
        self.has_less = False
        """Whether the topic has one queue."""
        self.topic: Final = topic
        self.group: Final = group
        self._queues: Final = queues

    def draw(self) -> Remake:
        """Draw the next act."""
        draw = self.rng.random()
        if draw < 0.4:
            return Remake.TOPIC
        return Remake.GROUP if draw < 0.6 else Remake.QUEUES

    def request(self, act: Remake) -> Command:
        """Return the request for an act."""
        if act is Remake.TOPIC:
            return deletion_request(self.topic)
        if act is Remake.GROUP:
            of_group = DeleteSubscriptionGroupRequest(self.group, True)
            return new_request(RequestCode.DELETE_SUBSCRIPTIONGROUP, of_group)
        self.has_less = not self.has_less
        return queues_request(self.topic, 1 if self.has_less else self._queues)

    def whole(self) -> Command:
        """The topic has all its queues."""
        self.has_less = False
        return queues_request(self.topic, self._queues)


def queues_request(topic: str, queues: int, attributes: str = "") -> Command:
    """The topic has that many queues; `attributes` are changes, as "+name=value"."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    if attributes:
        fields["attributes"] = attributes
    return new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, None, fields=fields)


def deletion_request(topic: str) -> Command:
    """Request to delete the topic."""
    return new_request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic))


class Broker(Protocol):
    """A broker of a group, with its state while it is up."""

    up: bool

    @property
    def context(self) -> BrokerContext | None: ...


class LastDeletion:
    """Knowledge of the last deletion of a topic or its group at the brokers of a group, which copy
    deletions from their master.
    """

    def __init__(self, topic: str, group: str) -> None:
        self.count = 0
        """Number of sure deletions of the topic or the group."""
        self.is_sure = True
        """Whether no deletion may still be on its way, and none was forgotten by an election."""
        self.unaware: set[Broker] = set()
        """Brokers that have not copied the last deletion."""
        self._topic: Final = topic
        self._group: Final = group
        self._life: Life = (0, 0)
        """Life at the master."""
        self._topic_times = {0}
        """Times at which masters deleted the topic."""

    def answered(self, brokers: Iterable[Broker], *, is_done: bool, is_once: bool = True) -> None:
        """The master was asked to delete: without success, or where the request may arrive more
        than once, the deletion may come later, or not at all."""
        self.count += is_done
        self.is_sure &= is_done and is_once
        self.unaware = set(brokers)
        self._life = max((self.life_of(one) for one in self.unaware if one.up), default=self._life)
        self._topic_times.add(self._life[0])

    def look(self, leading: Iterable[Broker]) -> bool:
        """Brokers may have copied the deletion; whether one leads that has not."""
        if not self.unaware:
            return False
        known = {one for one in self.unaware if one.up and self.life_of(one) == self._life}
        self.unaware -= known
        return any(one in self.unaware for one in leading)

    def life_of(self, broker: Broker) -> Life:
        """The life of topic and group as that broker knows it."""
        context = broker.context
        assert context is not None, "it is up"
        topic_ms = context.store.deletions.deleted_ms(self._topic)
        if context.store.deletions.is_proven(self._topic):
            # The log alone proved the deletion: its time is that of the first record after it.
            topic_ms = max(at_ms for at_ms in self._topic_times if at_ms <= topic_ms + 1)
        return topic_ms, context.groups.deleted_ms(self._group)


@dataclass(eq=False)
class Letter:
    """A message, as its popper knows it."""

    body: bytes
    is_safe: bool = False
    until_ms: int = 0
    """Time until which its last hand-out surely hides it."""
    handle: str = ""
    was_handled: bool = False
    is_done: bool = False
    """Whether its acknowledgement was answered in time."""
    may_double: bool = False
    """Whether the log may have two copies: it was sent twice (F32), or its time ended when a broker
    ended or began to lead, possibly between the copy and the record that ends the hand-out.
    """

    def leave(self, *, is_gone: bool) -> None:
        """Note that the topic is about to be deleted, or the group, which gets the message again:
        earlier deliveries and acknowledgements do not count, and neither, if the letter `is_gone`,
        does its send.
        """
        self.is_safe &= not is_gone
        self.may_double = True  # its copies in the retry topic stay with the group
        self.until_ms, self.handle, self.is_done = 0, "", False

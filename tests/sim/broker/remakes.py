"""An operator that deletes topics and groups with their offsets, and changes how many queues a
topic has.

Owns the choice of seeds that have an operator, its requests and its random generator, so that seeds
without it replay as before. It must never decide which messages still have to come: the suite
does.
"""

import random
from enum import Enum, auto
from typing import Final

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.admin import DeleteSubscriptionGroupRequest, DeleteTopicRequest

SHARE: Final = 0.3
"""Of the seeds."""


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

    def __init__(self, seed: int, salt: int, topic: str, group: str, queues: int = 2) -> None:
        self.rng: Final = random.Random(seed ^ salt)
        self.is_on: Final = self.rng.random() < SHARE
        self.has_less = False
        """Whether the topic has one queue."""
        self._topic: Final = topic
        self._group: Final = group
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
            header = DeleteTopicRequest(self._topic)
            return new_request(RequestCode.DELETE_TOPIC_IN_BROKER, header)
        if act is Remake.GROUP:
            of_group = DeleteSubscriptionGroupRequest(self._group, True)
            return new_request(RequestCode.DELETE_SUBSCRIPTIONGROUP, of_group)
        self.has_less = not self.has_less
        return queues_request(self._topic, 1 if self.has_less else self._queues)

    def whole(self) -> Command:
        """The topic has all its queues."""
        self.has_less = False
        return queues_request(self._topic, self._queues)


def queues_request(topic: str, queues: int) -> Command:
    """The topic has that many queues."""
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
    return new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, None, fields=fields)

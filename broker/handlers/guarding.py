"""The guard of a broker's request table, and the facts that its rights depend on.

Owns the connection of broker/auth with the broker's parts. It must never decide about a request.
"""

from turbopump.broker.auth.guard import Guard, GuardOptions
from turbopump.broker.context import BrokerContext
from turbopump.broker.scheduled.half_messages import target_of
from turbopump.engine.types import LogOffset
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_TOPIC
from turbopump.net.wire.pop_handles import RetryKind
from turbopump.net.wire.properties import decode_properties

_HALVES = frozenset({HALF_TOPIC, GIVEN_UP_TOPIC})


def make_guard(broker: BrokerContext) -> Guard | None:
    """Make the guard of the broker's requests; None if authenticationEnabled is false."""
    users, log, config = broker.users, broker.audit_log, broker.config.auth
    if users is None or log is None:
        return None
    options = GuardOptions(
        authorizes=config.authorization_enabled,
        unauthenticated=config.authentication_whitelist,
        unauthorized=config.authorization_whitelist,
    )
    return Guard(options, users.user, users.acl, BrokerFacts(broker), log.denied)


class BrokerFacts:
    """The broker's state, as rights need it (`RequestFacts` of broker/auth/rights.py)."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    @property
    def cluster(self) -> str:
        """Name of the broker's cluster."""
        return self._broker.config.broker_cluster_name

    def has_topic(self, name: str) -> bool:
        """Whether the topic exists."""
        return self._broker.topics.peek_topic(name) is not None

    def has_group(self, name: str) -> bool:
        """Whether the group exists."""
        return self._broker.groups.get(name) is not None

    def owns_retry_topic(self, group: str, topic: str) -> bool:
        """Whether `%RETRY%group_topic` is the group's retry topic for the topic."""
        return self._broker.pop.retry_names.belongs_to_group(RetryKind.RETRY_V1, topic, group)

    def topic_at(self, log_offset: int) -> str | None:
        """The topic of the record at a log offset, of a half message that of its commit; None
        without a record."""
        if log_offset < 0:
            return None
        record = self._broker.store.record(LogOffset(log_offset))
        if record is None:
            return None
        topic = record.topic.decode("utf-8", "replace")
        target = target_of(decode_properties(record.properties)) if topic in _HALVES else None
        return topic if target is None else target[0]

"""Subscriptions from a program's arguments: tags or an SQL expression.

Owns the check of both, and the warnings about topics that do not exist. It must never keep a
subscription.

Tests: tests/unit/net/client/consuming/test_balancer.py
"""

import logging
from typing import Final

from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.wire.subscription import ALL, SQL92, TAG, SubscriptionData, parse_subscription

logger = logging.getLogger(__name__)

NO_SUBSCRIPTION: Final = "nothing is subscribed to: call subscribe first"
"""Text of the ClientError of a consumer without a subscription."""

MISSING_EVERY_MS: Final = 60_000
"""Milliseconds between two warnings that a subscribed topic does not exist."""


class MissingTopics:
    """Warns once a minute, for each topic, that a group waits for a topic that does not exist."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._next_ms: dict[str, int] = {}

    def warn_missing(self, topic: str, steady_ms: int) -> None:
        """Log a warning, at most every MISSING_EVERY_MS for a topic: no name server knows a
        readable queue of it. `steady_ms` is the monotonic clock."""
        if steady_ms >= self._next_ms.get(topic, steady_ms):
            self._next_ms[topic] = steady_ms + MISSING_EVERY_MS
            logger.warning(
                "group %s waits for topic %s: no name server knows a queue of it that can be read",
                self._group,
                topic,
            )

    def note_found(self, topic: str) -> None:
        """Let the next `warn_missing` of the topic warn at once: it exists, or is no longer
        subscribed."""
        self._next_ms.pop(topic, None)


def subscription_of(topic: str, expression: str, sql: str | None, now_ms: int) -> SubscriptionData:
    """A subscription by tags ("*", or tags joined by "||"), or by `sql` if that is given; `now_ms`
    (epoch milliseconds) becomes its version, by which brokers find the newer of two.

    Raises InvalidArgument for an invalid expression, and if both are given. The condition `sql` is
    not parsed: the broker does.
    """
    check_type(expression, str, "an expression", "a text")
    check_type("" if sql is None else sql, str, "sql", "a text")
    if sql is not None and expression != ALL:
        raise InvalidArgument("a subscription is by tags or by SQL, not by both")
    kind = TAG if sql is None else SQL92
    try:
        return parse_subscription(topic, expression if sql is None else sql, kind, now_ms)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None

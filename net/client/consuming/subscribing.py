"""What a program asks a consumer for: tags or an expression, as a subscription.

Owns the check of both, and the warnings about topics that do not exist. It must never keep a
subscription. Called by the consumers.
"""

import logging
from typing import Final

from turbopump.net.client.errors import InvalidArgument, expect
from turbopump.net.wire.subscription import ALL, SQL92, TAG, SubscriptionData, parse_subscription

logger = logging.getLogger(__name__)

NO_SUBSCRIPTION: Final = "nothing is subscribed to: call subscribe first"

MISSING_EVERY_MS: Final = 60_000
"""Between two warnings that a subscribed topic does not exist."""


class MissingTopics:
    """Warns once a minute, for each topic, that a group waits for a topic that does not exist."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._next_ms: dict[str, int] = {}

    def missing(self, topic: str, steady_ms: int) -> None:
        """No name server knows a readable queue of the topic at `steady_ms`."""
        if steady_ms >= self._next_ms.get(topic, steady_ms):
            self._next_ms[topic] = steady_ms + MISSING_EVERY_MS
            logger.warning(
                "group %s waits for topic %s: no name server knows a queue of it that can be read",
                self._group,
                topic,
            )

    def found(self, topic: str) -> None:
        """The topic exists, or is no longer subscribed."""
        self._next_ms.pop(topic, None)


def subscription_of(topic: str, expression: str, sql: str | None, now_ms: int) -> SubscriptionData:
    """A subscription by tags, or by `sql` where that is given; `now_ms` becomes its version.

    Raises InvalidArgument for an expression that cannot be, and for both at once.
    """
    expect(expression, str, "an expression", "a text")
    expect("" if sql is None else sql, str, "sql", "a text")
    if sql is not None and expression != ALL:
        raise InvalidArgument("a subscription is by tags or by SQL, not by both")
    kind = TAG if sql is None else SQL92
    try:
        return parse_subscription(topic, expression if sql is None else sql, kind, now_ms)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None

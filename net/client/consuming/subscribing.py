"""What a program asks a consumer for: tags or an expression, as a subscription.

Owns the check of both. It must never keep one. Called by the consumers.
"""

from turbopump.net.client.errors import InvalidArgument
from turbopump.net.wire.subscription import ALL, SQL92, TAG, SubscriptionData, parse_subscription


def subscription_of(topic: str, expression: str, sql: str | None, now_ms: int) -> SubscriptionData:
    """A subscription by tags, or by `sql` where that is given; `now_ms` becomes its version.

    Raises InvalidArgument for an expression that cannot be, and for both at once.
    """
    if sql is not None and expression != ALL:
        raise InvalidArgument("a subscription is by tags or by SQL, not by both")
    kind = TAG if sql is None else SQL92
    try:
        return parse_subscription(topic, expression if sql is None else sql, kind, now_ms)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None

"""The settings of a client, and the server's figures that are merged into them.

Owns the checks of settings and their merge (RocketMQ: GrpcClientSettingsManager, ClientActivity).
It must never keep a client: clients.py does.

Tests: tests/unit/net/messaging/test_clients.py
"""

from collections.abc import Iterable
from typing import Any, Final

from turbopump.net.grpc.codes import ClientType, Code, FilterType
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.delivery import set_ms
from turbopump.net.messaging.rpc import RpcRefused, group_of, topic_of
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import (
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    SUBSCRIPTIONS_MAX,
    ConsumerData,
)
from turbopump.net.wire.subscription import SQL92, TAG, SubscriptionData, parse_subscription

PRODUCER_ATTEMPTS: Final = 3
"""Attempts of a producer to send a message (grpcClientProducerMaxAttempts)."""
PRODUCER_BACKOFF_MS: Final = (10, 1_000)
"""Initial and longest wait between a producer's attempts (grpcClientProducerBackoff...)."""
BATCH_MAX: Final = 32
"""Maximum number of messages of a receive (grpcClientConsumerLongPollingBatchSize)."""
POLL_MAX_MS: Final = 20_000
"""Longest wait of a receive for messages (grpcClientConsumerMaxLongPollingTimeoutMillis)."""
LITE_QUOTA, LITE_TOPIC_SIZE = 2_000, 64
"""Number of light subscriptions of a client, and characters of a light topic, that settings promise
(maxLiteSubscriptionCount, maxLiteTopicSize)."""

RETRY_S: Final = (
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200),
)
"""Default retry delays in seconds, the n-th after the n-th delivery (CustomizedRetryPolicy); the
last one repeats."""
EXPONENTIAL: Final = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}
"""Defaults of an exponential retry policy: first and longest delay in ms, and the factor between
two delays."""
TOPICS_MAX: Final = 1_000
"""Maximum number of topics that a client produces to, equal to the groups of a remoting
connection."""
_STEPS_MAX: Final = 100
_TIME_MAX_MS: Final = 1 << 40


def topics_of(settings: Any, most: int) -> list[str]:
    """The names of the topics in a producer's Settings, in order, at most `most`. Raises RpcRefused
    for more, or for an invalid name."""
    topics = settings.publishing.topics
    if len(topics) > most:
        raise RpcRefused(Code.BAD_REQUEST, f"{len(topics)} topics, over {most}")
    return [topic_of(resource) for resource in topics]


def names_in_settings(settings: Any) -> tuple[list[str], list[str]]:
    """Return (topics, groups) that the server must resolve to answer Settings: a producer's
    topics, or else a consumer's group. Raises RpcRefused for too many topics or an invalid name."""
    if settings.WhichOneof("kind") == "publishing":
        return topics_of(settings, TOPICS_MAX), []
    return [], [group_of(settings.subscription.group)]


def consumer_of(settings: Any, now_ms: int) -> ConsumerData:
    """A new entry of a heartbeat of remoting from a consumer's Settings; `now_ms`, epoch time,
    becomes the version of its subscriptions. Raises RpcRefused for an invalid name or expression,
    or too many subscriptions."""
    subscription = settings.subscription
    if len(subscription.subscriptions) > SUBSCRIPTIONS_MAX:
        text = f"{len(subscription.subscriptions)} subscriptions, over {SUBSCRIPTIONS_MAX}"
        raise RpcRefused(Code.BAD_REQUEST, text)
    is_push = settings.client_type != ClientType.SIMPLE_CONSUMER
    return ConsumerData(
        group_name=group_of(subscription.group),
        consume_type=CONSUME_PASSIVELY if is_push else CONSUME_ACTIVELY,
        subscription_data_set=[
            subscription_of(topic_of(one.topic), one.expression, now_ms)
            for one in subscription.subscriptions
        ],
    )


def subscription_of(topic: str, expression: Any, now_ms: int) -> SubscriptionData:
    """The subscription of a topic by a FilterExpression; without an expression it matches all
    messages. `now_ms`, epoch time, becomes its version. Raises RpcRefused for an expression that
    cannot be parsed."""
    kind = SQL92 if expression.type == FilterType.SQL else TAG
    try:
        return parse_subscription(topic, expression.expression or "*", kind, now_ms)
    except ValueError as error:
        raise RpcRefused(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def find_group(backend: RequestBackend, name: str) -> SubscriptionGroupConfig:
    """The configuration of a group, which is created now if groups are created automatically.
    Raises RpcRefused if it does not exist, or its existence is not known."""
    group = backend.group_config(name)
    if group is None:
        raise RpcRefused(Code.CONSUMER_GROUP_NOT_FOUND, f"group not found: {name}")
    return group


def merge_settings(backend: RequestBackend, settings: Any) -> None:
    """Change a client's Settings in place: put the server's own figures into them. Raises
    RpcRefused if a consumer's group does not exist, or is not known."""
    settings.metric.on = False
    if settings.WhichOneof("kind") == "publishing":
        policy = settings.backoff_policy
        policy.max_attempts = PRODUCER_ATTEMPTS
        _set_exponential(policy, *PRODUCER_BACKOFF_MS, 2)
        settings.publishing.max_body_size = backend.body_max
        settings.publishing.validate_message_type = True
        return
    subscription = settings.subscription
    group = find_group(backend, subscription.group.name)
    set_retries(settings.backoff_policy, group)
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = BATCH_MAX
    set_ms(subscription.long_polling_timeout, POLL_MAX_MS)
    subscription.lite_subscription_quota, subscription.max_lite_topic_size = (
        LITE_QUOTA,
        LITE_TOPIC_SIZE,
    )


def set_retries(policy: Any, group: SubscriptionGroupConfig) -> None:
    """Change `policy`, a message RetryPolicy, to the retry policy of a group; a malformed policy of
    an operator becomes the default."""
    policy.max_attempts = max(1, min(group.retry_max_times + 1, 1 << 20))
    stored = group.group_retry_policy
    if stored.get("type") == "EXPONENTIAL":
        given = stored.get("exponentialRetryPolicy")
        given = given if isinstance(given, dict) else {}
        figures = [_time_ms(given.get(name)) or default for name, default in EXPONENTIAL.items()]
        _set_exponential(policy, *figures)
        return
    given = stored.get("customizedRetryPolicy")
    steps = given.get("next") if isinstance(given, dict) else None
    steps_ms = [_time_ms(one) for one in steps[:_STEPS_MAX]] if isinstance(steps, list) else []
    _set_steps(policy, steps_ms if steps_ms and all(steps_ms) else [one * 1_000 for one in RETRY_S])


def retry_delay_ms(group: SubscriptionGroupConfig, attempt: int) -> int:
    """Delay in ms before a message that was delivered `attempt` times, at least once, is delivered
    again."""
    policy = message_class("RetryPolicy")()
    set_retries(policy, group)
    if policy.WhichOneof("kind") == "customized_backoff":
        steps = policy.customized_backoff.next
        return int(steps[min(attempt, len(steps)) - 1].seconds) * 1_000
    backoff = policy.exponential_backoff
    longest_s = int(backoff.max.seconds)
    # 2 ** 40 exceeds any time, so no larger power is computed.
    delay_s = backoff.initial.seconds * backoff.multiplier ** min(attempt - 1, 40)
    return int(min(delay_s, longest_s)) * 1_000


def _time_ms(value: Any) -> int:
    """Return a time in ms, as a JSON value, as an int; 0 for an invalid value."""
    return value if type(value) is int and 0 < value < _TIME_MAX_MS else 0


def _set_exponential(policy: Any, initial_ms: int, max_ms: int, multiplier: int) -> None:
    """Set an exponential backoff in `policy`, a RetryPolicy; times are in ms."""
    backoff = policy.exponential_backoff
    set_ms(backoff.initial, initial_ms)
    set_ms(backoff.max, max_ms)
    backoff.multiplier = multiplier


def _set_steps(policy: Any, steps_ms: Iterable[int]) -> None:
    """Set the delays of the 1st, 2nd, ... retry in `policy`, a RetryPolicy."""
    del policy.customized_backoff.next[:]
    for step_ms in steps_ms:
        set_ms(policy.customized_backoff.next.add(), step_ms)

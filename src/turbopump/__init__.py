"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x.

Owns the public names. It must never import anything at import time: commands, test runs and
programs pay only for the part they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.cluster import Cluster
    from turbopump.net.client.admin import Admin
    from turbopump.net.client.consumer import Consumer
    from turbopump.net.client.errors import BrokerError, ClientError
    from turbopump.net.client.messages import Message, ReceivedMessage, SendResult
    from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, MessageModel, Outcome
    from turbopump.net.client.producer import Producer, ProducerOptions
    from turbopump.net.client.pull_consumer import PullConsumer

__all__ = [
    "Admin",
    "BrokerError",
    "ClientError",
    "Cluster",
    "ConsumeFrom",
    "Consumer",
    "ConsumerOptions",
    "Message",
    "MessageModel",
    "Outcome",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "ReceivedMessage",
    "SendResult",
]

_HOMES = {
    "Admin": "turbopump.net.client.admin",
    "BrokerError": "turbopump.net.client.errors",
    "ClientError": "turbopump.net.client.errors",
    "Cluster": "turbopump.cluster",
    "ConsumeFrom": "turbopump.net.client.options",
    "Consumer": "turbopump.net.client.consumer",
    "ConsumerOptions": "turbopump.net.client.options",
    "Message": "turbopump.net.client.messages",
    "MessageModel": "turbopump.net.client.options",
    "Outcome": "turbopump.net.client.options",
    "Producer": "turbopump.net.client.producer",
    "ProducerOptions": "turbopump.net.client.producer",
    "PullConsumer": "turbopump.net.client.pull_consumer",
    "ReceivedMessage": "turbopump.net.client.messages",
    "SendResult": "turbopump.net.client.messages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

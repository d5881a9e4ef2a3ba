"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x.

Owns the public names. It must never import anything at import time: commands, test runs and
programs pay only for the part they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.broker.registration.addresses import StartError
    from turbopump.cluster import Cluster, ClusterError
    from turbopump.engine.compression import CompressionMissing
    from turbopump.engine.types import StoreError, TurbopumpError
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.consuming.consumer import Consumer
    from turbopump.net.client.consuming.pop_consumer import PopConsumer, PopOptions
    from turbopump.net.client.consuming.process_queue import FlowLimits
    from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
    from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
    from turbopump.net.client.errors import (
        BrokerError,
        ClientClosed,
        ClientError,
        InvalidArgument,
        NoWritableQueue,
        RouteNotFound,
    )
    from turbopump.net.client.messages import Message, ReceivedMessage, SendResult, SendStatus
    from turbopump.net.client.options import (
        ClientOptions,
        ConsumeFrom,
        ConsumerOptions,
        MessageModel,
        Outcome,
    )
    from turbopump.net.client.producer import Producer, ProducerOptions
    from turbopump.net.client.transactions import (
        TransactionEnd,
        TransactionProducer,
        TransactionResult,
    )
    from turbopump.net.transport.errors import (
        CallTimeout,
        ConnectError,
        ConnectionClosed,
        RemotingError,
        TooManyCalls,
    )
    from turbopump.net.transport.options import ClientTlsSettings
    from turbopump.net.transport.tls import TlsError
    from turbopump.net.wire.queues import MessageQueue

    __version__: str

__all__ = [
    "Admin",
    "BrokerError",
    "CallTimeout",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "ClientTlsSettings",
    "Cluster",
    "ClusterError",
    "CompressionMissing",
    "ConnectError",
    "ConnectionClosed",
    "ConsumeFrom",
    "Consumer",
    "ConsumerOptions",
    "FlowLimits",
    "InvalidArgument",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NoWritableQueue",
    "Outcome",
    "Producer",
    "ProducerOptions",
    "PopConsumer",
    "PopOptions",
    "PullConsumer",
    "PullOptions",
    "ReceivedMessage",
    "RemotingError",
    "RouteNotFound",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "StartError",
    "StoreError",
    "TlsError",
    "TooManyCalls",
    "TransactionEnd",
    "TransactionProducer",
    "TransactionResult",
    "TurbopumpError",
    "__version__",
]

_HOMES = {
    "Admin": "turbopump.net.client.admin.client",
    "BrokerError": "turbopump.net.client.errors",
    "CallTimeout": "turbopump.net.transport.errors",
    "ClientClosed": "turbopump.net.client.errors",
    "ClientError": "turbopump.net.client.errors",
    "ClientOptions": "turbopump.net.client.options",
    "ClientTlsSettings": "turbopump.net.transport.options",
    "Cluster": "turbopump.cluster",
    "ClusterError": "turbopump.cluster",
    "CompressionMissing": "turbopump.engine.compression",
    "ConnectError": "turbopump.net.transport.errors",
    "ConnectionClosed": "turbopump.net.transport.errors",
    "ConsumeFrom": "turbopump.net.client.options",
    "Consumer": "turbopump.net.client.consuming.consumer",
    "ConsumerOptions": "turbopump.net.client.options",
    "FlowLimits": "turbopump.net.client.consuming.process_queue",
    "InvalidArgument": "turbopump.net.client.errors",
    "Message": "turbopump.net.client.messages",
    "MessageModel": "turbopump.net.client.options",
    "MessageQueue": "turbopump.net.wire.queues",
    "NoWritableQueue": "turbopump.net.client.errors",
    "Outcome": "turbopump.net.client.options",
    "Producer": "turbopump.net.client.producer",
    "ProducerOptions": "turbopump.net.client.producer",
    "PopConsumer": "turbopump.net.client.consuming.pop_consumer",
    "PopOptions": "turbopump.net.client.consuming.pop_consumer",
    "PullConsumer": "turbopump.net.client.consuming.pull_consumer",
    "PullOptions": "turbopump.net.client.consuming.pull_consumer",
    "ReceivedMessage": "turbopump.net.client.messages",
    "RemotingError": "turbopump.net.transport.errors",
    "RouteNotFound": "turbopump.net.client.errors",
    "SendResult": "turbopump.net.client.messages",
    "SendStatus": "turbopump.net.client.messages",
    "SimpleConsumer": "turbopump.net.client.consuming.simple_consumer",
    "StartError": "turbopump.broker.registration.addresses",
    "StoreError": "turbopump.engine.types",
    "TlsError": "turbopump.net.transport.tls",
    "TooManyCalls": "turbopump.net.transport.errors",
    "TransactionEnd": "turbopump.net.client.transactions",
    "TransactionProducer": "turbopump.net.client.transactions",
    "TransactionResult": "turbopump.net.client.transactions",
    "TurbopumpError": "turbopump.engine.types",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version(__name__)
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x.

    from turbopump import Consumer, Message, Producer

    async with Producer("orders", "127.0.0.1:9876") as producer:
        await producer.send(Message("Orders", b"one", tags="new"))

Senders: Producer, TransactionProducer. Consumers that call a handler: Consumer (pull, in queues of
its own), PopConsumer (the broker hands out messages). Consumers that the program asks:
SimpleConsumer, PullConsumer. Admin does the work of mqadmin and returns results with `to_json`.
Cluster starts name server, brokers and controllers as processes of a test (turbopump.testing has
the pytest fixture). Each error is a TurbopumpError.

Owns the public names. It must never import anything at import time: commands, test runs and
programs pay only for the part they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.broker.registration.addresses import StartError
    from turbopump.cluster import BrokerAddress, Cluster, ClusterError
    from turbopump.engine.compression import CompressionMissing
    from turbopump.engine.types import Progress, QueueOffset, StoreError, TurbopumpError
    from turbopump.net.allocation.shares import MachineRooms
    from turbopump.net.client.admin.client import Admin
    from turbopump.net.client.admin.controller import ControllerAdmin
    from turbopump.net.client.admin.group_view import ControllerView, GroupView, Sample
    from turbopump.net.client.admin.group_watch import GroupWatch
    from turbopump.net.client.admin.results import (
        BrokerEpochs,
        BrokerLine,
        BrokerStatus,
        ChangedConfig,
        CleanedBroker,
        ClientConnection,
        ClusterList,
        ConsumeMode,
        ConsumerClients,
        ConsumerProgress,
        ControllerMetadata,
        DeletedTopic,
        ElectedMaster,
        EpochSpan,
        FoundMessage,
        FoundMessages,
        GroupProgress,
        HaReplica,
        HaStatus,
        MemberStatus,
        MessageTrack,
        NodeProperties,
        ProducerClients,
        QueueProgress,
        QueueStatus,
        ReplicaLine,
        ResentMessage,
        ResetOffsets,
        ResetQueue,
        SyncStateLine,
        TopicLine,
        TopicList,
        TopicRouteResult,
        TopicStatus,
        TopicTraffic,
        UpdatedControllerConfig,
        UpdatedGroup,
        UpdatedTopic,
        WritePerm,
    )
    from turbopump.net.client.admin.trace import MessageTrace, TraceRecord
    from turbopump.net.client.client_instance import ClientInstance
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
    from turbopump.net.client.routes import TopicRoute
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
    from turbopump.net.transport.options import ClientTlsSettings, RemotingOptions
    from turbopump.net.transport.tls import TlsError
    from turbopump.net.wire.queues import MessageQueue

    __version__: str

__all__ = [
    "Admin",
    "BrokerAddress",
    "BrokerEpochs",
    "BrokerError",
    "BrokerLine",
    "BrokerStatus",
    "CallTimeout",
    "ChangedConfig",
    "CleanedBroker",
    "ClientClosed",
    "ClientConnection",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "ClientTlsSettings",
    "Cluster",
    "ClusterError",
    "ClusterList",
    "CompressionMissing",
    "ConnectError",
    "ConnectionClosed",
    "ConsumeFrom",
    "ConsumeMode",
    "Consumer",
    "ConsumerClients",
    "ConsumerOptions",
    "ConsumerProgress",
    "ControllerAdmin",
    "ControllerMetadata",
    "ControllerView",
    "DeletedTopic",
    "ElectedMaster",
    "EpochSpan",
    "FlowLimits",
    "FoundMessage",
    "FoundMessages",
    "GroupProgress",
    "GroupView",
    "GroupWatch",
    "HaReplica",
    "HaStatus",
    "InvalidArgument",
    "MachineRooms",
    "MemberStatus",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageTrace",
    "MessageTrack",
    "NoWritableQueue",
    "NodeProperties",
    "Outcome",
    "PopConsumer",
    "PopOptions",
    "Producer",
    "ProducerClients",
    "ProducerOptions",
    "Progress",
    "PullConsumer",
    "PullOptions",
    "QueueOffset",
    "QueueProgress",
    "QueueStatus",
    "ReceivedMessage",
    "RemotingError",
    "RemotingOptions",
    "ReplicaLine",
    "ResentMessage",
    "ResetOffsets",
    "ResetQueue",
    "RouteNotFound",
    "Sample",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "StartError",
    "StoreError",
    "SyncStateLine",
    "TlsError",
    "TooManyCalls",
    "TopicLine",
    "TopicList",
    "TopicRoute",
    "TopicRouteResult",
    "TopicStatus",
    "TopicTraffic",
    "TraceRecord",
    "TransactionEnd",
    "TransactionProducer",
    "TransactionResult",
    "TurbopumpError",
    "UpdatedControllerConfig",
    "UpdatedGroup",
    "UpdatedTopic",
    "WritePerm",
    "__version__",
]

_HOMES = {
    "Admin": "turbopump.net.client.admin.client",
    "BrokerAddress": "turbopump.cluster",
    "BrokerEpochs": "turbopump.net.client.admin.results",
    "BrokerError": "turbopump.net.client.errors",
    "BrokerLine": "turbopump.net.client.admin.results",
    "BrokerStatus": "turbopump.net.client.admin.results",
    "CallTimeout": "turbopump.net.transport.errors",
    "ChangedConfig": "turbopump.net.client.admin.results",
    "CleanedBroker": "turbopump.net.client.admin.results",
    "ClientClosed": "turbopump.net.client.errors",
    "ClientConnection": "turbopump.net.client.admin.results",
    "ClientError": "turbopump.net.client.errors",
    "ClientInstance": "turbopump.net.client.client_instance",
    "ClientOptions": "turbopump.net.client.options",
    "ClientTlsSettings": "turbopump.net.transport.options",
    "Cluster": "turbopump.cluster",
    "ClusterError": "turbopump.cluster",
    "ClusterList": "turbopump.net.client.admin.results",
    "CompressionMissing": "turbopump.engine.compression",
    "ConnectError": "turbopump.net.transport.errors",
    "ConnectionClosed": "turbopump.net.transport.errors",
    "ConsumeFrom": "turbopump.net.client.options",
    "ConsumeMode": "turbopump.net.client.admin.results",
    "Consumer": "turbopump.net.client.consuming.consumer",
    "ConsumerClients": "turbopump.net.client.admin.results",
    "ConsumerOptions": "turbopump.net.client.options",
    "ConsumerProgress": "turbopump.net.client.admin.results",
    "ControllerAdmin": "turbopump.net.client.admin.controller",
    "ControllerMetadata": "turbopump.net.client.admin.results",
    "ControllerView": "turbopump.net.client.admin.group_view",
    "DeletedTopic": "turbopump.net.client.admin.results",
    "ElectedMaster": "turbopump.net.client.admin.results",
    "EpochSpan": "turbopump.net.client.admin.results",
    "FlowLimits": "turbopump.net.client.consuming.process_queue",
    "FoundMessage": "turbopump.net.client.admin.results",
    "FoundMessages": "turbopump.net.client.admin.results",
    "GroupProgress": "turbopump.net.client.admin.results",
    "GroupView": "turbopump.net.client.admin.group_view",
    "GroupWatch": "turbopump.net.client.admin.group_watch",
    "HaReplica": "turbopump.net.client.admin.results",
    "HaStatus": "turbopump.net.client.admin.results",
    "InvalidArgument": "turbopump.net.client.errors",
    "MachineRooms": "turbopump.net.allocation.shares",
    "MemberStatus": "turbopump.net.client.admin.results",
    "Message": "turbopump.net.client.messages",
    "MessageModel": "turbopump.net.client.options",
    "MessageQueue": "turbopump.net.wire.queues",
    "MessageTrace": "turbopump.net.client.admin.trace",
    "MessageTrack": "turbopump.net.client.admin.results",
    "NoWritableQueue": "turbopump.net.client.errors",
    "NodeProperties": "turbopump.net.client.admin.results",
    "Outcome": "turbopump.net.client.options",
    "PopConsumer": "turbopump.net.client.consuming.pop_consumer",
    "PopOptions": "turbopump.net.client.consuming.pop_consumer",
    "Producer": "turbopump.net.client.producer",
    "ProducerClients": "turbopump.net.client.admin.results",
    "ProducerOptions": "turbopump.net.client.producer",
    "Progress": "turbopump.engine.types",
    "PullConsumer": "turbopump.net.client.consuming.pull_consumer",
    "PullOptions": "turbopump.net.client.consuming.pull_consumer",
    "QueueOffset": "turbopump.engine.types",
    "QueueProgress": "turbopump.net.client.admin.results",
    "QueueStatus": "turbopump.net.client.admin.results",
    "ReceivedMessage": "turbopump.net.client.messages",
    "RemotingError": "turbopump.net.transport.errors",
    "RemotingOptions": "turbopump.net.transport.options",
    "ReplicaLine": "turbopump.net.client.admin.results",
    "ResentMessage": "turbopump.net.client.admin.results",
    "ResetOffsets": "turbopump.net.client.admin.results",
    "ResetQueue": "turbopump.net.client.admin.results",
    "RouteNotFound": "turbopump.net.client.errors",
    "Sample": "turbopump.net.client.admin.group_view",
    "SendResult": "turbopump.net.client.messages",
    "SendStatus": "turbopump.net.client.messages",
    "SimpleConsumer": "turbopump.net.client.consuming.simple_consumer",
    "StartError": "turbopump.broker.registration.addresses",
    "StoreError": "turbopump.engine.types",
    "SyncStateLine": "turbopump.net.client.admin.results",
    "TlsError": "turbopump.net.transport.tls",
    "TooManyCalls": "turbopump.net.transport.errors",
    "TopicLine": "turbopump.net.client.admin.results",
    "TopicList": "turbopump.net.client.admin.results",
    "TopicRoute": "turbopump.net.client.routes",
    "TopicRouteResult": "turbopump.net.client.admin.results",
    "TopicStatus": "turbopump.net.client.admin.results",
    "TopicTraffic": "turbopump.net.client.admin.results",
    "TraceRecord": "turbopump.net.client.admin.trace",
    "TransactionEnd": "turbopump.net.client.transactions",
    "TransactionProducer": "turbopump.net.client.transactions",
    "TransactionResult": "turbopump.net.client.transactions",
    "TurbopumpError": "turbopump.engine.types",
    "UpdatedControllerConfig": "turbopump.net.client.admin.results",
    "UpdatedGroup": "turbopump.net.client.admin.results",
    "UpdatedTopic": "turbopump.net.client.admin.results",
    "WritePerm": "turbopump.net.client.admin.results",
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

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
    from turbopump.net.client.admin.group_view import (
        BrokerView,
        ControllerView,
        GroupView,
        LagView,
        PopView,
        Sample,
        WaitingView,
    )
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
        ProducerOptions,
    )
    from turbopump.net.client.producer import Producer
    from turbopump.net.client.shared_client import SharedClient
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
    "BrokerView",
    "CallTimeout",
    "ChangedConfig",
    "CleanedBroker",
    "ClientClosed",
    "ClientConnection",
    "ClientError",
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
    "LagView",
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
    "PopView",
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
    "SharedClient",
    "SimpleConsumer",
    "StartError",
    "StoreError",
    "SyncStateLine",
    "TlsError",
    "TooManyCalls",
    "TopicLine",
    "TopicList",
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
    "WaitingView",
    "WritePerm",
    "__version__",
]

_HOMES = {
    name: f"turbopump.{home}"
    for home, names in {
        "broker.registration.addresses": "StartError",
        "cluster": "BrokerAddress Cluster ClusterError",
        "engine.compression": "CompressionMissing",
        "engine.types": "Progress QueueOffset StoreError TurbopumpError",
        "net.allocation.shares": "MachineRooms",
        "net.client.admin.client": "Admin",
        "net.client.admin.controller": "ControllerAdmin",
        "net.client.admin.group_view": """
            BrokerView ControllerView GroupView LagView PopView Sample WaitingView""",
        "net.client.admin.group_watch": "GroupWatch",
        "net.client.admin.results": """
            BrokerEpochs BrokerLine BrokerStatus ChangedConfig CleanedBroker ClientConnection
            ClusterList ConsumeMode ConsumerClients ConsumerProgress ControllerMetadata
            DeletedTopic ElectedMaster EpochSpan FoundMessage FoundMessages GroupProgress
            HaReplica HaStatus MemberStatus MessageTrack NodeProperties ProducerClients
            QueueProgress QueueStatus ReplicaLine ResentMessage ResetOffsets ResetQueue
            SyncStateLine TopicLine TopicList TopicRouteResult TopicStatus TopicTraffic
            UpdatedControllerConfig UpdatedGroup UpdatedTopic WritePerm""",
        "net.client.admin.trace": "MessageTrace TraceRecord",
        "net.client.consuming.consumer": "Consumer",
        "net.client.consuming.pop_consumer": "PopConsumer PopOptions",
        "net.client.consuming.process_queue": "FlowLimits",
        "net.client.consuming.pull_consumer": "PullConsumer PullOptions",
        "net.client.consuming.simple_consumer": "SimpleConsumer",
        "net.client.errors": """
            BrokerError ClientClosed ClientError InvalidArgument NoWritableQueue RouteNotFound""",
        "net.client.messages": "Message ReceivedMessage SendResult SendStatus",
        "net.client.options": """
            ClientOptions ConsumeFrom ConsumerOptions MessageModel Outcome ProducerOptions""",
        "net.client.producer": "Producer",
        "net.client.shared_client": "SharedClient",
        "net.client.transactions": "TransactionEnd TransactionProducer TransactionResult",
        "net.transport.errors": """
            CallTimeout ConnectError ConnectionClosed RemotingError TooManyCalls""",
        "net.transport.options": "ClientTlsSettings RemotingOptions",
        "net.transport.tls": "TlsError",
        "net.wire.queues": "MessageQueue",
    }.items()
    for name in names.split()
}
"""Names, with the modules that define them."""


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

"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x.

Run a name server and a broker with `turbopump up`, then send and receive:

    import asyncio
    from turbopump import Consumer, Message, Producer

    async def main():
        async with Producer("orders", "127.0.0.1:9876") as producer:
            await producer.send(Message("Orders", b"one", tags="new"))
        async with Consumer("billing", "127.0.0.1:9876") as consumer:
            consumer.subscribe("Orders")
            async for message in consumer:
                print(message.text)

    asyncio.run(main())

Senders
    Producer             sends, one message, a batch or one-way; recalls timers
    TransactionProducer  sends messages that consumers see if a local transaction succeeds
Consumers
    Consumer             has queues of its own; the program iterates, or registers a handler
    PopConsumer          a handler for messages of any queue, which the broker hands out
    SimpleConsumer       the program receives messages of any queue and acknowledges each
    PullConsumer         the program assigns queues, polls and commits
Operation
    Admin                the commands of mqadmin; results have `to_json`
    Cluster              name server, brokers and controllers as processes of a test; the pytest
                         fixture is in turbopump.testing

Every client is used with `async with`. Message, MessageQueue and SendResult are sent and returned,
ReceivedMessage is received; ProducerOptions, ConsumerOptions, PopOptions, PullOptions and
ClientOptions have the settings, Credentials the user whose secret signs requests. Clients with one
SharedClient share connections. Producer and SimpleConsumer speak gRPC with `endpoints`. Each error
is a TurbopumpError: ClientError for a request that was refused or invalid, RemotingError for a
request without an answer.

help(turbopump.Producer) and the like have the details.
"""

# Imports of the public names take place when a name is first used: commands, test runs and programs
# pay only for the part that they use.

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.broker.registration.addresses import StartError as StartError
    from turbopump.cluster import BrokerAddress as BrokerAddress
    from turbopump.cluster import Cluster as Cluster
    from turbopump.cluster import ClusterError as ClusterError
    from turbopump.engine.compression import CompressionMissing as CompressionMissing
    from turbopump.engine.types import Progress as Progress
    from turbopump.engine.types import QueueOffset as QueueOffset
    from turbopump.engine.types import StoreError as StoreError
    from turbopump.engine.types import TurbopumpError as TurbopumpError
    from turbopump.net.allocation.shares import MachineRooms as MachineRooms
    from turbopump.net.client.admin.client import Admin as Admin
    from turbopump.net.client.admin.controller import ControllerAdmin as ControllerAdmin
    from turbopump.net.client.admin.group_view import BrokerView as BrokerView
    from turbopump.net.client.admin.group_view import ControllerView as ControllerView
    from turbopump.net.client.admin.group_view import GroupView as GroupView
    from turbopump.net.client.admin.group_view import LagView as LagView
    from turbopump.net.client.admin.group_view import PopView as PopView
    from turbopump.net.client.admin.group_view import Sample as Sample
    from turbopump.net.client.admin.group_view import WaitingView as WaitingView
    from turbopump.net.client.admin.group_watch import GroupWatch as GroupWatch
    from turbopump.net.client.admin.results import BrokerEpochs as BrokerEpochs
    from turbopump.net.client.admin.results import BrokerLine as BrokerLine
    from turbopump.net.client.admin.results import BrokerStatus as BrokerStatus
    from turbopump.net.client.admin.results import ChangedConfig as ChangedConfig
    from turbopump.net.client.admin.results import CleanedBroker as CleanedBroker
    from turbopump.net.client.admin.results import ClientConnection as ClientConnection
    from turbopump.net.client.admin.results import ClusterList as ClusterList
    from turbopump.net.client.admin.results import ConsumeMode as ConsumeMode
    from turbopump.net.client.admin.results import ConsumerClients as ConsumerClients
    from turbopump.net.client.admin.results import ConsumerProgress as ConsumerProgress
    from turbopump.net.client.admin.results import ControllerMetadata as ControllerMetadata
    from turbopump.net.client.admin.results import DeletedTopic as DeletedTopic
    from turbopump.net.client.admin.results import ElectedMaster as ElectedMaster
    from turbopump.net.client.admin.results import EpochSpan as EpochSpan
    from turbopump.net.client.admin.results import FoundMessage as FoundMessage
    from turbopump.net.client.admin.results import FoundMessages as FoundMessages
    from turbopump.net.client.admin.results import GroupProgress as GroupProgress
    from turbopump.net.client.admin.results import HaReplica as HaReplica
    from turbopump.net.client.admin.results import HaStatus as HaStatus
    from turbopump.net.client.admin.results import MemberStatus as MemberStatus
    from turbopump.net.client.admin.results import MessageTrack as MessageTrack
    from turbopump.net.client.admin.results import NodeProperties as NodeProperties
    from turbopump.net.client.admin.results import ProducerClients as ProducerClients
    from turbopump.net.client.admin.results import QueueProgress as QueueProgress
    from turbopump.net.client.admin.results import QueueStatus as QueueStatus
    from turbopump.net.client.admin.results import ReplicaLine as ReplicaLine
    from turbopump.net.client.admin.results import ResentMessage as ResentMessage
    from turbopump.net.client.admin.results import ResetOffsets as ResetOffsets
    from turbopump.net.client.admin.results import ResetQueue as ResetQueue
    from turbopump.net.client.admin.results import SyncStateLine as SyncStateLine
    from turbopump.net.client.admin.results import TopicLine as TopicLine
    from turbopump.net.client.admin.results import TopicList as TopicList
    from turbopump.net.client.admin.results import TopicRouteResult as TopicRouteResult
    from turbopump.net.client.admin.results import TopicStatus as TopicStatus
    from turbopump.net.client.admin.results import TopicTraffic as TopicTraffic
    from turbopump.net.client.admin.results import (
        UpdatedControllerConfig as UpdatedControllerConfig,
    )
    from turbopump.net.client.admin.results import UpdatedGroup as UpdatedGroup
    from turbopump.net.client.admin.results import UpdatedTopic as UpdatedTopic
    from turbopump.net.client.admin.results import WritePerm as WritePerm
    from turbopump.net.client.admin.trace import MessageTrace as MessageTrace
    from turbopump.net.client.admin.trace import TraceRecord as TraceRecord
    from turbopump.net.client.consuming.consumer import Consumer as Consumer
    from turbopump.net.client.consuming.pop_consumer import PopConsumer as PopConsumer
    from turbopump.net.client.consuming.pop_consumer import PopOptions as PopOptions
    from turbopump.net.client.consuming.process_queue import FlowLimits as FlowLimits
    from turbopump.net.client.consuming.pull_consumer import PullConsumer as PullConsumer
    from turbopump.net.client.consuming.pull_consumer import PullOptions as PullOptions
    from turbopump.net.client.consuming.simple_consumer import SimpleConsumer as SimpleConsumer
    from turbopump.net.client.credentials import Credentials as Credentials
    from turbopump.net.client.errors import BrokerError as BrokerError
    from turbopump.net.client.errors import ClientClosed as ClientClosed
    from turbopump.net.client.errors import ClientError as ClientError
    from turbopump.net.client.errors import InvalidArgument as InvalidArgument
    from turbopump.net.client.errors import NoWritableQueue as NoWritableQueue
    from turbopump.net.client.errors import RouteNotFound as RouteNotFound
    from turbopump.net.client.messages import Message as Message
    from turbopump.net.client.messages import ReceivedMessage as ReceivedMessage
    from turbopump.net.client.messages import SendResult as SendResult
    from turbopump.net.client.messages import SendStatus as SendStatus
    from turbopump.net.client.options import ClientOptions as ClientOptions
    from turbopump.net.client.options import ConsumeFrom as ConsumeFrom
    from turbopump.net.client.options import ConsumerOptions as ConsumerOptions
    from turbopump.net.client.options import MessageModel as MessageModel
    from turbopump.net.client.options import Outcome as Outcome
    from turbopump.net.client.options import ProducerOptions as ProducerOptions
    from turbopump.net.client.producer import Producer as Producer
    from turbopump.net.client.shared_client import SharedClient as SharedClient
    from turbopump.net.client.transactions import TransactionEnd as TransactionEnd
    from turbopump.net.client.transactions import TransactionProducer as TransactionProducer
    from turbopump.net.client.transactions import TransactionResult as TransactionResult
    from turbopump.net.transport.errors import CallTimeout as CallTimeout
    from turbopump.net.transport.errors import ConnectError as ConnectError
    from turbopump.net.transport.errors import ConnectionClosed as ConnectionClosed
    from turbopump.net.transport.errors import RemotingError as RemotingError
    from turbopump.net.transport.errors import TooManyCalls as TooManyCalls
    from turbopump.net.transport.options import ClientTlsSettings as ClientTlsSettings
    from turbopump.net.transport.tls import TlsError as TlsError
    from turbopump.net.wire.queues import MessageQueue as MessageQueue

    __version__: str

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
        "net.client.credentials": "Credentials",
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
        "net.transport.options": "ClientTlsSettings",
        "net.transport.tls": "TlsError",
        "net.wire.queues": "MessageQueue",
    }.items()
    for name in names.split()
}
"""Names, with the modules that define them."""

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a public name from its module at its first use; `__version__` is the
    installed version."""
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

"""Messages of `apache.rocketmq.v2` as classes of protobuf, made of a table of their fields.

Owns the table: its names, types and numbers are RocketMQ's. It must never know the purpose of a
message. The module is loaded only if gRPC is served or used by a client.

Each line of the table is a message; its fields have the numbers 1, 2, ... in their order. `name` is
a text, other types follow a colon; `?` is optional (it is known whether it was set), `*` repeated,
`|` a member of the message's oneof, `{}` a map of texts. A line that begins with a blank continues
the previous line.

Tests: tests/unit/net/grpc/test_reflection.py, tests/unit/net/messaging/test_clients.py
"""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from turbopump.net.grpc.codes import ENUMS
from turbopump.net.grpc.descriptors import add_method

PACKAGE: Final = "apache.rocketmq.v2"
"""The package of all messages, part of their full names."""
SERVICE: Final = f"{PACKAGE}.MessagingService"
"""The full name of the clients' service."""

_TABLE: Final = """
FilterExpression type:FilterType expression
RetryPolicy max_attempts:int32 exponential_backoff:ExponentialBackoff|
    customized_backoff:CustomizedBackoff|
ExponentialBackoff initial:Duration max:Duration multiplier:float
CustomizedBackoff next:Duration*
Resource resource_namespace name
SubscriptionEntry topic:Resource expression:FilterExpression
Address host port:int32
Endpoints scheme:AddressScheme addresses:Address*
Broker name id:int32 endpoints:Endpoints
MessageQueue topic:Resource id:int32 permission:Permission broker:Broker
    accept_message_types:MessageType*
Digest type:DigestType checksum
SystemProperties tag? keys* message_id body_digest:Digest body_encoding:Encoding
    message_type:MessageType born_timestamp:Timestamp born_host store_timestamp:Timestamp?
    store_host delivery_timestamp:Timestamp? receipt_handle? queue_id:int32 queue_offset:int64?
    invisible_duration:Duration? delivery_attempt:int32? message_group? trace_context?
    orphaned_transaction_recovery_duration:Duration? dead_letter_queue:DeadLetterQueue?
    lite_topic? priority:int32?
DeadLetterQueue topic message_id
Message topic:Resource user_properties{} system_properties:SystemProperties body:bytes
Assignment message_queue:MessageQueue
Status code:Code message
UA language:Language version platform hostname
Settings client_type:ClientType? access_point:Endpoints? backoff_policy:RetryPolicy?
    request_timeout:Duration? publishing:Publishing| subscription:Subscription| user_agent:UA
    metric:Metric client_properties{}
Publishing topics:Resource* max_body_size:int32 validate_message_type:bool
Subscription group:Resource? subscriptions:SubscriptionEntry* fifo:bool?
    receive_batch_size:int32? long_polling_timeout:Duration? lite_subscription_quota:int32?
    max_lite_topic_size:int32?
Metric on:bool endpoints:Endpoints?
QueryRouteRequest topic:Resource endpoints:Endpoints
QueryRouteResponse status:Status message_queues:MessageQueue*
SendMessageRequest messages:Message*
SendResultEntry status:Status message_id transaction_id offset:int64 recall_handle
SendMessageResponse status:Status entries:SendResultEntry*
QueryAssignmentRequest topic:Resource group:Resource endpoints:Endpoints
QueryAssignmentResponse status:Status assignments:Assignment*
ReceiveMessageRequest group:Resource message_queue:MessageQueue
    filter_expression:FilterExpression batch_size:int32 invisible_duration:Duration?
    auto_renew:bool long_polling_timeout:Duration? attempt_id?
ReceiveMessageResponse status:Status| message:Message| delivery_timestamp:Timestamp|
AckMessageEntry message_id receipt_handle lite_topic?
AckMessageRequest group:Resource topic:Resource entries:AckMessageEntry*
AckMessageResultEntry message_id receipt_handle status:Status
AckMessageResponse status:Status entries:AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest group:Resource topic:Resource receipt_handle message_id
    delivery_attempt:int32 max_delivery_attempts:int32 lite_topic?
ForwardMessageToDeadLetterQueueResponse status:Status
HeartbeatRequest group:Resource? client_type:ClientType
HeartbeatResponse status:Status
EndTransactionRequest topic:Resource message_id transaction_id resolution:TransactionResolution
    source:TransactionSource trace_context
EndTransactionResponse status:Status
PrintThreadStackTraceCommand nonce
ReconnectEndpointsCommand nonce
ThreadStackTrace nonce thread_stack_trace?
VerifyMessageCommand nonce message:Message
VerifyMessageResult nonce
RecoverOrphanedTransactionCommand message:Message transaction_id
NotifyUnsubscribeLiteCommand lite_topic
TelemetryCommand status:Status? settings:Settings| thread_stack_trace:ThreadStackTrace|
    verify_message_result:VerifyMessageResult|
    recover_orphaned_transaction_command:RecoverOrphanedTransactionCommand|
    print_thread_stack_trace_command:PrintThreadStackTraceCommand|
    verify_message_command:VerifyMessageCommand|
    reconnect_endpoints_command:ReconnectEndpointsCommand|
    notify_unsubscribe_lite_command:NotifyUnsubscribeLiteCommand|
NotifyClientTerminationRequest group:Resource?
NotifyClientTerminationResponse status:Status
ChangeInvisibleDurationRequest group:Resource topic:Resource receipt_handle
    invisible_duration:Duration message_id lite_topic? suspend:bool?
ChangeInvisibleDurationResponse status:Status receipt_handle
RecallMessageRequest topic:Resource recall_handle
RecallMessageResponse status:Status message_id
"""

_Field = descriptor_pb2.FieldDescriptorProto
_PLAIN: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
}
_KNOWN: Final = ("Duration", "Timestamp")
_STREAMS: Final = ("ReceiveMessage", "Telemetry")
_MARKS: Final = "?*|"


def _table_lines() -> list[list[str]]:
    """Return the lines of the table, each as its words: the message's name, then its fields."""
    return [line.split() for line in _TABLE.replace("\n ", " ").strip().splitlines()]


def _known_file(name: str) -> Any:
    """Return google/protobuf's own file with the message Duration or Timestamp."""
    proto = descriptor_pb2.FileDescriptorProto(
        name=f"google/protobuf/{name.lower()}.proto", package="google.protobuf", syntax="proto3"
    )
    made = proto.message_type.add(name=name)
    for number, (field, kind) in enumerate((("seconds", "int64"), ("nanos", "int32")), 1):
        made.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL, type=_PLAIN[kind])
    return proto


def _add_map(made: Any, name: str, number: int) -> None:
    """Add a field of type map<string, string> to a DescriptorProto."""
    entry = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    nested = made.nested_type.add(name=entry)
    nested.options.map_entry = True
    for at, key in enumerate(("key", "value"), 1):
        nested.field.add(name=key, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    made.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED,
        type=_Field.TYPE_MESSAGE,
        type_name=f".{PACKAGE}.{made.name}.{entry}",
    )


def _add_field(made: Any, word: str, number: int, enums: frozenset[str]) -> None:
    """Add the field that a word of the table describes to a DescriptorProto."""
    name, _, kind = word.rstrip(_MARKS).partition(":")
    mark = word[-1]
    if name.endswith("{}"):
        _add_map(made, name[:-2], number)
        return
    field = made.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    kind = kind or "string"
    if kind in _PLAIN:
        field.type = _PLAIN[kind]
    elif kind in enums:
        field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{kind}"
    else:
        package = "google.protobuf" if kind in _KNOWN else PACKAGE
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    if mark == "*":
        field.label = _Field.LABEL_REPEATED
    elif mark == "|":
        if not made.oneof_decl:
            made.oneof_decl.add(name="kind")
        field.oneof_index = 0


def _mark_optional(made: Any, words: list[str]) -> None:
    """Put each optional field into a oneof of its own, after the other oneofs."""
    for field, word in zip(made.field, words, strict=True):
        if word.endswith("?"):
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")


def _service_file() -> Any:
    """Make the FileDescriptorProto of all enumerations and messages of the table."""
    proto = descriptor_pb2.FileDescriptorProto(
        name="apache/rocketmq/v2/service.proto", package=PACKAGE, syntax="proto3"
    )
    for name in _KNOWN:
        proto.dependency.append(f"google/protobuf/{name.lower()}.proto")
    for enum in ENUMS:
        made = proto.enum_type.add(name=enum.__name__)
        for value in enum:
            made.value.add(name=value.name, number=value.value)
    enums = frozenset(enum.__name__ for enum in ENUMS)
    for message, *words in _table_lines():
        made = proto.message_type.add(name=message)
        for number, word in enumerate(words, 1):
            _add_field(made, word, number, enums)
        _mark_optional(made, words)
    return proto


def _make_classes() -> dict[str, Any]:
    """Make the protobuf classes of all messages in a pool of their own, by name without package."""
    # A separate pool: a program may have loaded RocketMQ's client, whose messages have the same
    # names.
    pool = descriptor_pool.DescriptorPool()
    for name in _KNOWN:
        pool.Add(_known_file(name))
    pool.Add(_service_file())
    names = [f"google.protobuf.{name}" for name in _KNOWN]
    names += [f"{PACKAGE}.{line[0]}" for line in _table_lines()]
    find, make = pool.FindMessageTypeByName, message_factory.GetMessageClass
    return {name.rsplit(".", 1)[1]: make(find(name)) for name in names}


_CLASSES: Final = _make_classes()


def service_files(methods: Iterable[str]) -> list[Any]:
    """FileDescriptorProtos of the service with `methods`, given as names such as SendMessage: the
    files of Duration and Timestamp, then the service's own, which depends on them."""
    made = _service_file()
    service = made.service.add(name=SERVICE.rpartition(".")[2])
    for name in methods:
        asked, answered = f"{name}Request", f"{name}Response"
        if name == "Telemetry":
            asked = answered = "TelemetryCommand"
        both, responses = name == "Telemetry", name in _STREAMS
        add_method(service, PACKAGE, name, asked, answered, asks=both, responses=responses)
    return [*map(_known_file, _KNOWN), made]


def message_class(name: str) -> Any:
    """The protobuf class of a message of the table, or of Duration or Timestamp, by its name
    without package. Raises KeyError."""
    return _CLASSES[name]

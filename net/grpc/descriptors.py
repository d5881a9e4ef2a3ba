"""Descriptors of the services that every gRPC server here has, made of tables.

Owns the descriptors of health and reflection, and the way in which a file of descriptors is made.
It must never know the purpose of a message.

Tests: tests/unit/net/grpc/test_reflection.py
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2

HEALTH: Final = "grpc.health.v1"
"""The package of the health service."""

Messages = Mapping[str, Sequence[str]]
"""Fields by message: `NUMBER name:TYPE`, followed by `*` for a repeated field, or `|` for a member
of the message's oneof."""

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
}
_HEALTH: Final[Messages] = {
    "HealthCheckRequest": ["1 service:string"],
    "HealthCheckResponse": ["1 status:ServingStatus"],
}
_STATES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_REFLECTION: Final[Messages] = {
    "ServerReflectionRequest": [
        "1 host:string",
        "3 file_by_filename:string|",
        "4 file_containing_symbol:string|",
        "5 file_containing_extension:ExtensionRequest|",
        "6 all_extension_numbers_of_type:string|",
        "7 list_services:string|",
    ],
    "ExtensionRequest": ["1 containing_type:string", "2 extension_number:int32"],
    "ServerReflectionResponse": [
        "1 valid_host:string",
        "2 original_request:ServerReflectionRequest",
        "4 file_descriptor_response:FileDescriptorResponse|",
        "5 all_extension_numbers_response:ExtensionNumberResponse|",
        "6 list_services_response:ListServiceResponse|",
        "7 error_response:ErrorResponse|",
    ],
    "FileDescriptorResponse": ["1 file_descriptor_proto:bytes*"],
    "ExtensionNumberResponse": ["1 base_type_name:string", "2 extension_number:int32*"],
    "ListServiceResponse": ["1 service:ServiceResponse*"],
    "ServiceResponse": ["1 name:string"],
    "ErrorResponse": ["1 error_code:int32", "2 error_message:string"],
}


def health_file() -> Any:
    """A new FileDescriptorProto of `grpc.health.v1` with the service Health; it depends on no
    file."""
    made = _make_file("grpc/health/v1/health.proto", HEALTH, _HEALTH, enums=("ServingStatus",))
    response = made.message_type[1]
    states = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(_STATES):
        states.value.add(name=name, number=number)
    response.field[0].type_name = f".{HEALTH}.HealthCheckResponse.ServingStatus"
    names = "HealthCheckRequest", "HealthCheckResponse"
    service = made.service.add(name="Health")
    add_method(service, HEALTH, "Check", *names)
    add_method(service, HEALTH, "Watch", *names, responses=True)
    return made


def reflection_file(package: str) -> Any:
    """A new FileDescriptorProto of `package`, `grpc.reflection.v1` or its alpha, with the service
    ServerReflection; it depends on no file. Both packages have the same messages."""
    made = _make_file(f"{package.replace('.', '/')}/reflection.proto", package, _REFLECTION)
    service = made.service.add(name="ServerReflection")
    names = "ServerReflectionRequest", "ServerReflectionResponse"
    add_method(service, package, "ServerReflectionInfo", *names, asks=True, responses=True)
    return made


def add_method(
    service: Any,
    package: str,
    name: str,
    asked: str,
    answered: str,
    *,
    asks: bool = False,
    responses: bool = False,
) -> None:
    """Add a method to `service`, a ServiceDescriptorProto, whose messages `asked` and `answered`
    are in `package`. `asks` makes its request, `responses` its response a stream."""
    made = service.method.add(
        name=name, input_type=f".{package}.{asked}", output_type=f".{package}.{answered}"
    )
    if asks:
        made.client_streaming = True
    if responses:
        made.server_streaming = True


def _make_file(name: str, package: str, messages: Messages, enums: Sequence[str] = ()) -> Any:
    """Make a FileDescriptorProto; `messages` maps a message's name to its fields as texts (see
    `_add_field`), `enums` are the names of field types that are enumerations."""
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message, fields in messages.items():
        one = made.message_type.add(name=message)
        for text in fields:
            _add_field(one, package, text, enums)
    return made


def _add_field(message: Any, package: str, text: str, enums: Sequence[str]) -> None:
    """Add a field to a DescriptorProto. `text` is `NUMBER NAME:TYPE`, then `*` for a repeated
    field or `|` for a member of the message's oneof."""
    number, _, rest = text.partition(" ")
    name, _, kind = rest.rstrip("*|").partition(":")
    label = _Field.LABEL_REPEATED if text.endswith("*") else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label)
    field.type = _TYPES.get(kind, _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE)
    if kind not in _TYPES:
        field.type_name = f".{package}.{kind}"
    if text.endswith("|"):
        if not message.oneof_decl:
            asks = message.name.endswith("Request")
            message.oneof_decl.add(name="message_request" if asks else "message_response")
        field.oneof_index = 0

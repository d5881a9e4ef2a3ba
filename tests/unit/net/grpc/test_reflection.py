"""Services that a client can list by reflection, and the limits of its requests."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.unit.net.grpc.conftest import Bench, Wire, hear
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import frame, frames, headers

from turbopump.net.grpc.call import Method
from turbopump.net.grpc.descriptors import reflection_file
from turbopump.net.grpc.framing import MessageReader, frame_message
from turbopump.net.grpc.messages import SERVICE, service_files
from turbopump.net.grpc.reflection import HEALTH, NAMES, VERSIONS, Reflection

Make = Callable[..., Bench]


def words(version: str, name: str) -> Any:
    """The class of `ServerReflectionRequest` or of the answer."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(reflection_file(version))
    found = pool.FindMessageTypeByName(f"{version}.ServerReflection{name}")
    return message_factory.GetMessageClass(found)


class Asking:
    """A stream of a single version of reflection."""

    def __init__(
        self,
        made: Bench,
        version: str = VERSIONS[0],
        methods: Mapping[str, Method] | None = None,
    ) -> None:
        made.hub.methods = methods or Reflection([HEALTH], lambda: ()).methods
        self.version = version
        self.one, self.wire = made.connect()
        path = f"/{version}.ServerReflection/ServerReflectionInfo".encode()
        pairs = [(b":path", path) if pair[0] == b":path" else pair for pair in h2.REQUEST]
        hear(self.one, headers(1, pairs))

    def send(self, *messages: bytes) -> list[Any]:
        self.wire.out = b""
        hear(self.one, frame(h2.DATA, 1, b"".join(map(frame_message, messages))))
        found = b"".join(body for kind, _, _, body in frames(self.wire.out) if kind == h2.DATA)
        response = words(self.version, "Response")
        return [response.FromString(one) for one in MessageReader(1 << 20, False).feed_bytes(found)]

    def ask(self, **asked: Any) -> Any:
        (response,) = self.send(words(self.version, "Request")(**asked).SerializeToString())
        return response


@pytest.fixture(params=VERSIONS)
def asking(request: pytest.FixtureRequest, bench: Make) -> Asking:
    return Asking(bench(), request.param)


def test_services_are_listed_and_the_request_comes_back(asking: Asking) -> None:
    response = asking.ask(host="here", list_services="")
    names = [one.name for one in response.list_services_response.service]
    assert names == sorted([HEALTH, *NAMES])
    assert (response.valid_host, response.original_request.host) == ("here", "here")


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "grpc.health.v1.Health"},
        {"file_containing_symbol": "grpc.health.v1.Health.Watch"},
        {"file_containing_symbol": "grpc.health.v1.HealthCheckResponse.ServingStatus"},
        {"file_by_filename": "grpc/health/v1/health.proto"},
    ],
)
def test_a_file_has_the_descriptors_a_caller_needs(asking: Asking, asked: dict[str, str]) -> None:
    (data,) = asking.ask(**asked).file_descriptor_response.file_descriptor_proto
    file = descriptor_pb2.FileDescriptorProto.FromString(data)
    (service,) = file.service
    assert [(one.name, one.server_streaming) for one in service.method] == [
        ("Check", False),
        ("Watch", True),
    ]
    states = file.message_type[1].enum_type[0].value
    assert [(one.name, one.number) for one in states][1:3] == [("SERVING", 1), ("NOT_SERVING", 2)]


@pytest.mark.parametrize("version", VERSIONS)
def test_reflection_describes_itself(asking: Asking, version: str) -> None:
    response = asking.ask(file_containing_symbol=f"{version}.ServerReflection")
    (data,) = response.file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(data).package == version


def test_an_absent_descriptor_is_reported_and_the_stream_goes_on(asking: Asking) -> None:
    extension = {"containing_type": "a.B", "extension_number": 1}
    for asked, code in (
        ({"file_containing_symbol": "no.Such"}, 5),
        ({"file_containing_symbol": "grpc.health.v1.Health.No"}, 5),
        ({"file_by_filename": "../no.proto"}, 5),
        ({"all_extension_numbers_of_type": "no.Such"}, 5),
        ({"file_containing_extension": extension}, 5),
        ({}, 3),
    ):
        assert asking.ask(**asked).error_response.error_code == code, asked
    name = "grpc.health.v1.HealthCheckRequest"
    response = asking.ask(all_extension_numbers_of_type=name).all_extension_numbers_response
    assert (response.base_type_name, [*response.extension_number]) == (name, [])


@pytest.mark.parametrize("bad", [b"\xff", b"\x0a\x7fx", b"\x0a\xff\xff\x03" + bytes(65_535)])
def test_an_invalid_request_ends_the_stream(asking: Asking, bad: bytes) -> None:
    for at in range(0, len(bad) or 1, 16_000):
        part = frame_message(bad)[at : at + 16_000]
        hear(asking.one, frame(h2.DATA, 1, part))
    ended = [flags for kind, _, flags, _ in frames(asking.wire.out) if kind == h2.HEADERS]
    assert ended and ended[-1] & h2.END_STREAM


def test_the_end_of_the_client_is_the_end_of_the_call(asking: Asking) -> None:
    hear(asking.one, frame(h2.DATA, 1, b"", h2.END_STREAM))
    assert isinstance(asking.wire, Wire)
    assert [flags & 1 for kind, _, flags, _ in frames(asking.wire.out) if kind == h2.HEADERS][-1]


def test_messages_of_rocketmq_come_with_all_that_they_need(bench: Make) -> None:
    names = ["SendMessage", "ReceiveMessage", "Telemetry"]
    asking = Asking(bench(), methods=Reflection([SERVICE], partial(service_files, names)).methods)
    response = asking.ask(file_containing_symbol=f"{SERVICE}.Telemetry")
    found = response.file_descriptor_response.file_descriptor_proto
    protos = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in found]
    assert sorted(one.name for one in protos)[1:] == [
        "google/protobuf/duration.proto",
        "google/protobuf/timestamp.proto",
    ]
    (service,) = protos[0].service
    assert [(one.name, one.client_streaming, one.server_streaming) for one in service.method] == [
        ("SendMessage", False, False),
        ("ReceiveMessage", False, True),
        ("Telemetry", True, True),
    ]
    pool = descriptor_pool.DescriptorPool()
    for one in reversed(protos):
        pool.Add(one)
    sent = pool.FindMessageTypeByName("apache.rocketmq.v2.Message")
    assert (sent.fields_by_name["body"].number, sent.fields_by_name["topic"].number) == (4, 1)

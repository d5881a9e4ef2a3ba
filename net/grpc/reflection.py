"""`grpc.reflection.v1.ServerReflection`, and its alpha: the services and their message types.

Owns the answers. It must never know a service but by its descriptors, which `files` returns when
the first client asks.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from turbopump.net.grpc.call import GrpcCall, Method
from turbopump.net.grpc.status import GrpcCode, GrpcError

VERSIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
"""The packages of the reflection service that are served, with the same messages."""
NAMES: Final = tuple(f"{version}.ServerReflection" for version in VERSIONS)
"""The full names of the reflection service, one for each of VERSIONS."""
HEALTH: Final = "grpc.health.v1.Health"
"""The full name of the health service, which every server describes."""
ASKED_MAX: Final = 1_024
"""Maximum bytes of a request: a name is shorter."""

Files = Callable[[], Iterable[Any]]
"""Makes the FileDescriptorProtos of services; a file follows the files that it depends on."""


class Reflection:
    """Serves reflection. `services`, full names, are listed besides NAMES. `files` is called when
    the first client asks, and must not include health and reflection."""

    def __init__(self, services: Iterable[str], files: Files) -> None:
        self._services = sorted({*services, *NAMES})
        self._files = files
        self._known: _DescriptorPool | None = None

    @property
    def methods(self) -> dict[str, Method]:
        """The streaming methods of both versions, by path; to be added to the server's methods."""
        return {
            f"/{name}/ServerReflectionInfo": partial(self._begin_stream, version)
            for name, version in zip(NAMES, VERSIONS, strict=True)
        }

    def _begin_stream(self, version: str, call: GrpcCall) -> None:
        """Begin a stream of reflection in the given version of the service."""
        call.on_message = partial(self._on_request, version, call)
        call.on_end = call.answer_with

    def _on_request(self, version: str, call: GrpcCall, message: bytes) -> None:
        """Answer a request of a stream. Raises GrpcError."""
        if call.is_clogged:
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "earlier answers were not taken yet")
        if len(message) > ASKED_MAX:
            raise GrpcError(GrpcCode.INVALID_ARGUMENT, f"a request of {len(message)} bytes")
        if self._known is None:
            # Descriptors take memory that few servers need, so they are made on the first request.
            self._known = _DescriptorPool(self._files())
        call.send(self._known.answer_request(version, message, self._services))


def _message_classes(pool: Any, version: str) -> tuple[Any, Any]:
    """Return the classes (ServerReflectionRequest, ServerReflectionResponse) of a version."""
    from google.protobuf import message_factory

    names = "ServerReflectionRequest", "ServerReflectionResponse"
    found = [pool.FindMessageTypeByName(f"{version}.{name}") for name in names]
    request, response = map(message_factory.GetMessageClass, found)
    return request, response


class _DescriptorPool:
    """The descriptors of all served files, in a pool of their own."""

    def __init__(self, files: Iterable[Any]) -> None:
        from google.protobuf import descriptor_pool

        from turbopump.net.grpc.descriptors import health_file, reflection_file

        self._pool = descriptor_pool.DescriptorPool()
        for file in (*files, health_file(), *map(reflection_file, VERSIONS)):
            self._pool.Add(file)
        self._classes = {version: _message_classes(self._pool, version) for version in VERSIONS}

    def answer_request(self, version: str, message: bytes, services: list[str]) -> bytes:
        """Answer a request. Raises GrpcError for malformed bytes."""
        from google.protobuf.message import DecodeError

        try:
            request_class, response_class = self._classes[version]
            asked = request_class.FromString(message)
        except DecodeError:
            text = "not a ServerReflectionRequest"
            raise GrpcError(GrpcCode.INVALID_ARGUMENT, text) from None
        response = response_class(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        try:
            self._fill_response(response, kind, asked, services)
        except KeyError:
            response.error_response.error_code = GrpcCode.NOT_FOUND
            response.error_response.error_message = "there is no such descriptor"
        return bytes(response.SerializeToString())

    def _fill_response(
        self, response: Any, kind: str | None, asked: Any, services: list[str]
    ) -> None:
        """Set the fields of `response` for the request `asked` of this `kind`; raises KeyError for
        an unknown name."""
        if kind == "list_services":
            for name in services:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._add_files(response, self._pool.FindFileByName(asked.file_by_filename))
        elif kind == "file_containing_symbol":
            self._add_files(response, self._file_of(asked.file_containing_symbol))
        elif kind == "all_extension_numbers_of_type":
            name = self._pool.FindMessageTypeByName(asked.all_extension_numbers_of_type).full_name
            response.all_extension_numbers_response.base_type_name = name
        elif kind == "file_containing_extension":
            raise KeyError(kind)  # no message has extensions
        else:
            response.error_response.error_code = GrpcCode.INVALID_ARGUMENT
            response.error_response.error_message = "the request asks for nothing"

    def _file_of(self, symbol: str) -> Any:
        """Return the file that declares a service, method or message; raises KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            # The pool does not find methods by their names.
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service).methods_by_name[method]
            return found.containing_service.file

    def _add_files(self, response: Any, file: Any) -> None:
        """Add a file and all files that it depends on."""
        added: dict[str, bytes] = {}
        waiting = [file]
        while waiting:
            one = waiting.pop()
            if one.name not in added:
                added[one.name] = one.serialized_pb
                waiting += one.dependencies
        response.file_descriptor_response.file_descriptor_proto.extend(added.values())

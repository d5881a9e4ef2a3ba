"""The status of a call: gRPC's codes, and their place in trailers.

Owns the spelling of `grpc-status` and `grpc-message`. It must never know a service.

Tests: tests/unit/net/grpc/test_framing.py
"""

from enum import IntEnum
from typing import Final

from turbopump.pyx.h2 import pairs

TEXT_MAX: Final = 1_024
"""Maximum characters of a message: one line for an operator, not a dump."""


class GrpcCode(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call that is ended with a code other than OK."""

    def __init__(self, code: GrpcCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


HEAD: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
HEADERS: Final = pairs(list(HEAD))
"""Headers of every answer that has messages."""

_OK: Final = pairs([(b"grpc-status", b"0")])


def trailers(code: GrpcCode, text: str) -> bytes:
    """The trailers that end an answer."""
    if code is GrpcCode.OK:
        return _OK
    return pairs(_status(code, text))


def refusal(code: GrpcCode, text: str) -> bytes:
    """Headers of an answer that has nothing else, not even messages."""
    return pairs([*HEAD, *_status(code, text)])


def _status(code: GrpcCode, text: str) -> list[tuple[bytes, bytes]]:
    return [(b"grpc-status", b"%d" % code), (b"grpc-message", quoted(text))]


def quoted(text: str) -> bytes:
    """`text` as `grpc-message` encodes it: bytes other than printable ASCII, and %, become %XX."""
    raw = text[:TEXT_MAX].encode(errors="replace")
    return b"".join(
        bytes((one,)) if 0x20 <= one <= 0x7E and one != 0x25 else b"%%%02X" % one for one in raw
    )

"""The status of a call: gRPC's codes, and their place in trailers.

Owns the spelling of `grpc-status` and `grpc-message`. It must never know a service.

Tests: tests/unit/net/grpc/test_framing.py
"""

from enum import IntEnum
from typing import Final

from turbopump.pyx.h2 import pairs

TEXT_MAX: Final = 1_024
"""Maximum characters of the text of a status: one line for an operator, not a dump."""


class GrpcCode(IntEnum):
    """The status codes of gRPC (`grpc-status`), which end a call: OK or an error."""

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
    """The end of a call with a code other than OK; `text` is for the caller."""

    def __init__(self, code: GrpcCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


HEAD: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
"""Names and values of the headers of every answer."""
HEADERS: Final = pairs(list(HEAD))
"""HEAD, encoded for H2Session.answer: the headers of an answer with messages."""

_OK: Final = pairs([(b"grpc-status", b"0")])


def encode_trailers(code: GrpcCode, text: str) -> bytes:
    """The trailers that end an answer, encoded for H2Session; `text` is cut to TEXT_MAX characters,
    and dropped for OK."""
    if code is GrpcCode.OK:
        return _OK
    return pairs(_status(code, text))


def encode_refusal(code: GrpcCode, text: str) -> bytes:
    """The only headers of an answer without messages, which end it, encoded for H2Session.answer.
    `text` is cut to TEXT_MAX characters."""
    return pairs([*HEAD, *_status(code, text)])


def _status(code: GrpcCode, text: str) -> list[tuple[bytes, bytes]]:
    """Return the trailers grpc-status and grpc-message."""
    return [(b"grpc-status", b"%d" % code), (b"grpc-message", quote_text(text))]


def quote_text(text: str) -> bytes:
    """The first TEXT_MAX characters of `text` as `grpc-message` encodes their UTF-8: bytes other
    than printable ASCII, and %, become %XX."""
    raw = text[:TEXT_MAX].encode(errors="replace")
    return b"".join(
        bytes((one,)) if 0x20 <= one <= 0x7E and one != 0x25 else b"%%%02X" % one for one in raw
    )

"""The result of a call from a server's headers and trailers, and the reason if it is no gRPC
server.

Owns the conversion of headers and trailers to an error with a one-sentence text. It must never do
I/O nor trust a text: a server's texts are cut, and made printable.

Tests: tests/unit/net/grpc/test_hostile_servers.py
"""

from collections.abc import Mapping
from typing import Final

from turbopump.net.grpc.status import TEXT_MAX, GrpcCode, GrpcError

FIRST_BYTES: Final = 64
"""Number of a connection's first bytes that are kept to recognize other kinds of servers."""
STATUS_DIGITS_MAX: Final = 9
"""Maximum digits of a status; codes have two, and int() refuses thousands."""
_HEAD: Final = 4
_SETTINGS: Final = 4
_CODES: Final = frozenset(int(code) for code in GrpcCode)
_OF_HTTP: Final = {
    400: GrpcCode.INTERNAL,
    401: GrpcCode.UNAUTHENTICATED,
    403: GrpcCode.PERMISSION_DENIED,
    404: GrpcCode.UNIMPLEMENTED,
    429: GrpcCode.UNAVAILABLE,
    502: GrpcCode.UNAVAILABLE,
    503: GrpcCode.UNAVAILABLE,
    504: GrpcCode.UNAVAILABLE,
}
"""gRPC's own mapping of HTTP statuses that other servers, such as load balancers, answer."""


def why_not_http2(first: bytes) -> str | None:
    """A sentence about a server whose first bytes are not HTTP/2's (RFC 9113, section 3.4:
    SETTINGS); None if they are, or are fewer than 4 bytes, too few to decide."""
    if len(first) < _HEAD or (first[0] == 0 and first[3] == _SETTINGS):
        return None
    if first.startswith(b"HTTP/1"):
        line = readable_text(first.split(b"\r")[0])
        return f"it answers by HTTP/1 ({line}), not by HTTP/2"
    if first.startswith(b"\x15\x03"):
        return "it answers with an alert of TLS: it takes connections by TLS alone"
    return f"it does not speak HTTP/2: it begins with {first[:8].hex(' ')}"


def check_head(metadata: Mapping[bytes, bytes]) -> None:
    """Raises GrpcError for headers that do not begin an answer of gRPC: a status other than 200
    (the code follows gRPC's mapping, else UNKNOWN), or another content type (UNKNOWN)."""
    status = metadata.get(b":status", b"")
    if status != b"200":
        number = int(status) if status.isdigit() and len(status) <= STATUS_DIGITS_MAX else 0
        code = _OF_HTTP.get(number, GrpcCode.UNKNOWN)
        raise GrpcError(code, f"it answered with HTTP status {readable_text(status)}")
    kind = metadata.get(b"content-type", b"")
    if not kind.startswith(b"application/grpc"):
        text = f"it answered with content of type {readable_text(kind) or 'none'}, not of gRPC"
        raise GrpcError(GrpcCode.UNKNOWN, text)


def error_of_call(metadata: Mapping[bytes, bytes], held: int, error: int) -> GrpcError | None:
    """Return the error of an ended call, from its headers and trailers in `metadata`; None for
    OK. `held`: bytes of an incomplete message; `error`: the error code of the HTTP/2 stream, 0
    without one. Without `grpc-status` the code is UNAVAILABLE."""
    raw_status = metadata.get(b"grpc-status", b"")
    if not raw_status.isdigit() or len(raw_status) > STATUS_DIGITS_MAX:
        text = f"the server ended the call without a status ({error})"
        return GrpcError(GrpcCode.UNAVAILABLE, text)
    if int(raw_status) == GrpcCode.OK:
        if held:
            return GrpcError(GrpcCode.INTERNAL, "the answer ends within a message")
        return None
    code = GrpcCode(int(raw_status)) if int(raw_status) in _CODES else GrpcCode.UNKNOWN
    return GrpcError(
        code,
        decode_grpc_message(metadata.get(b"grpc-message", b""))
        or _describe_status(code, raw_status),
    )


def _describe_status(code: GrpcCode, raw_status: bytes) -> str:
    """Describe a status for an error whose server sent no `grpc-message`."""
    return f"status {raw_status.decode()}, {code.name}, without a message"


def decode_grpc_message(quoted: bytes) -> str:
    """Decode the text of `grpc-message`, where %XX is a byte of UTF-8; invalid parts stay as
    they are. The result is a line of printable characters, see `readable_text`."""
    parts = quoted[: 4 * TEXT_MAX].split(b"%")
    found = [parts[0]]
    for part in parts[1:]:
        try:
            found.append(bytes((int(part[:2], 16),)) + part[2:])
        except ValueError:
            found.append(b"%" + part)
    return readable_text(b"".join(found))


def readable_text(text: bytes) -> str:
    """Decode a peer's text as UTF-8 for a message: on one line, at most TEXT_MAX characters,
    characters that cannot be printed replaced by blanks."""
    decoded = text.decode(errors="replace")[:TEXT_MAX]
    return "".join(one if one.isprintable() else " " for one in decoded).strip()

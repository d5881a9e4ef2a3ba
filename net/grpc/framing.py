"""Messages in a stream of bytes, and the few headers of gRPC.

Owns the prefix of a message (a byte for compression, four for its length), gzip and the deadline.
It must never do I/O nor know a message.
"""

import zlib
from collections.abc import Mapping
from typing import Final

from turbopump.net.grpc.status import GrpcCode, GrpcError

PREFIX: Final = 5
"""Bytes of the prefix of a message."""
_UNITS_MS: Final = {
    "H": 3_600_000.0,
    "M": 60_000.0,
    "S": 1_000.0,
    "m": 1.0,
    "u": 0.001,
    "n": 0.000_001,
}
TIMEOUT_MAX_MS: Final = 365 * 24 * 3_600_000
"""A longer timeout counts as no timeout: some clients send sixty years for "forever"."""


def frame_message(message: bytes) -> bytes:
    """The message, uncompressed, after its 5 bytes of prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def timeout_ms(text: bytes | None) -> float | None:
    """The value of the header `grpc-timeout` in ms, which may be a fraction; None without the
    header, or from TIMEOUT_MAX_MS. Raises GrpcError (INTERNAL) for a malformed value."""
    if text is None:
        return None
    unit = _UNITS_MS.get(chr(text[-1])) if text else None
    digits = text[:-1]
    if unit is None or not digits.isdigit() or len(digits) > 8:
        raise GrpcError(GrpcCode.INTERNAL, "grpc-timeout is not one to eight digits and a unit")
    wanted_ms = int(digits) * unit
    return wanted_ms if wanted_ms < TIMEOUT_MAX_MS else None


def uses_gzip(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether compressed messages of a call are gzip: True for `grpc-encoding` gzip, False for
    identity or no such header, so that no message may be compressed. Raises GrpcError
    (UNIMPLEMENTED) for another encoding."""
    encoding = metadata.get(b"grpc-encoding", b"identity")
    if encoding not in {b"identity", b"gzip"}:
        text = f"grpc-encoding {encoding[:40].decode(errors='replace')} is not supported"
        raise GrpcError(GrpcCode.UNIMPLEMENTED, text)
    return encoding == b"gzip"


class MessageReader:
    """Cuts the bytes of a stream into messages of at most `message_max` bytes each, also when
    decompressed. `gzip`: whether messages may have the compressed flag."""

    __slots__ = ("_gzip", "_held", "_max")

    def __init__(self, message_max: int, gzip: bool) -> None:
        self._max = message_max
        self._gzip = gzip
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete message, its prefix included."""
        return len(self._held)

    def feed_bytes(self, data: bytes) -> list[bytes]:
        """Add bytes of the stream and return the messages that are complete now, in order,
        decompressed and without prefix. Raises GrpcError for malformed or too large messages; the
        messages and bytes of this call are lost then, `held_bytes` stays as before."""
        before = len(self._held)
        try:
            return self._cut_messages(data)
        except GrpcError:
            del self._held[before:]
            raise

    def _cut_messages(self, data: bytes) -> list[bytes]:
        """Return the complete messages of the held bytes and `data`, and hold the rest."""
        if self._held:
            # Bytes may arrive in tiny pieces, so the held bytes are not copied for each piece.
            self._held += data
            if not self._is_whole(self._held):
                return []
            data = bytes(self._held)
        found: list[bytes] = []
        at = 0
        while len(data) - at >= PREFIX:
            end = at + self._size_of(data, at)
            if len(data) < end:
                break
            found.append(self._decompress(data[at], data[at + PREFIX : end]))
            at = end
        self._held = bytearray(data[at:])
        return found

    def _is_whole(self, held: bytearray) -> bool:
        """Whether `held` contains the first message completely."""
        return len(held) >= PREFIX and len(held) >= self._size_of(held, 0)

    def _size_of(self, data: bytes | bytearray, at: int) -> int:
        """Bytes of the message at `at`, with its prefix; raises GrpcError for too many."""
        size = int.from_bytes(data[at + 1 : at + PREFIX], "big")
        if size > self._max:
            raise _too_large(size, self._max)
        return PREFIX + size

    def _decompress(self, flag: int, message: bytes) -> bytes:
        """Return a message as it is (`flag` 0) or without its gzip (`flag` 1). Raises GrpcError."""
        if flag == 0:
            return message
        if flag != 1 or not self._gzip:
            raise GrpcError(GrpcCode.INTERNAL, "a compressed message without grpc-encoding")
        unpacking = zlib.decompressobj(wbits=31)
        try:
            plain = unpacking.decompress(message, self._max + 1)
        except zlib.error as error:
            raise GrpcError(GrpcCode.INTERNAL, f"a message is not gzip: {error}") from None
        if len(plain) > self._max:
            raise _too_large(len(plain), self._max)
        if not unpacking.eof or unpacking.unused_data:
            raise GrpcError(GrpcCode.INTERNAL, "a message does not end where its gzip does")
        return plain


def _too_large(size: int, message_max: int) -> GrpcError:
    text = f"a message of {size} bytes or more is larger than {message_max}"
    return GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text)

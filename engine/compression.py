"""Decompression of message bodies by their sys_flag.

Owns the kinds of compression and the maximum size of a decompressed body. It must never keep a
body, nor require a package before a body needs it.

Tests: tests/unit/net/wire/test_message.py
"""

import zlib
from collections.abc import Callable
from typing import Final

from turbopump.engine.types import TurbopumpError

COMPRESSED_FLAG: Final = 0x1
"""The bit of a message's sys_flag that is set if its body is compressed (RocketMQ:
MessageSysFlag)."""

COMPRESSION_TYPE_MASK: Final = 0x700
"""The bits of sys_flag with the kind of compression: a COMPRESSION_ constant; 0: zlib."""

COMPRESSION_LZ4: Final = 0x100
"""`sys_flag & COMPRESSION_TYPE_MASK` of a body that is an LZ4 frame."""

COMPRESSION_ZSTD: Final = 0x200
"""The same of a Zstandard frame."""

COMPRESSION_ZLIB: Final = 0x300
"""The same of a zlib stream."""

INFLATED_MAX: Final = 64 << 20
"""Maximum bytes of a decompressed body: sixteen times the largest body that a producer may send, so
that a few hostile kilobytes do not fill the memory of a consumer."""

_ZSTD_STEP: Final = 512
"""Compressed bytes of a step: at most 128 blocks, each of at most 128 KiB."""


class BadCompression(ValueError):
    """A body is not whole and valid in the format that its sys_flag names, its sys_flag names no
    known format, or it has over INFLATED_MAX bytes decompressed."""


class CompressionMissing(TurbopumpError, RuntimeError):
    """A body needs the package lz4 or zstandard, which is not installed; the text has the command
    that installs it."""


def plain_body(sys_flag: int, body: bytes) -> bytes:
    """The decompressed body; the body itself if it is empty or sys_flag lacks COMPRESSED_FLAG.
    Raises BadCompression, CompressionMissing."""
    if not sys_flag & COMPRESSED_FLAG or not body:
        return body
    kind = sys_flag & COMPRESSION_TYPE_MASK
    inflater = _INFLATERS.get(kind)
    if inflater is None:
        raise BadCompression(f"a body of compression type {kind >> 8}, which is unknown")
    inflated = inflater(body)
    if len(inflated) > INFLATED_MAX:
        raise BadCompression(f"a body is over {INFLATED_MAX} bytes decompressed")
    return inflated


def _inflate_zlib(body: bytes) -> bytes:
    """Decompress a zlib stream, up to one byte over INFLATED_MAX. Raises BadCompression."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, INFLATED_MAX + 1)
    except zlib.error as error:
        raise BadCompression(f"a body is not compressed by zlib: {error}") from None
    if not inflater.eof and len(inflated) <= INFLATED_MAX:
        raise BadCompression("a body ends inside its zlib stream")
    return inflated


def _inflate_lz4(body: bytes) -> bytes:
    try:
        import lz4.frame
    except ImportError:
        raise _missing_package_error("lz4") from None
    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        inflated: bytes = inflater.decompress(body, INFLATED_MAX + 1)
    except RuntimeError as error:
        raise BadCompression(f"a body is not compressed by LZ4: {error}") from None
    if not inflater.eof and len(inflated) <= INFLATED_MAX:
        raise BadCompression("a body ends inside its LZ4 frame")
    return inflated


def _inflate_zstd(body: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise _missing_package_error("zstandard") from None
    inflater = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        # In steps, because the decompressor has no output limit and a frame may announce any size.
        for at in range(0, len(body), _ZSTD_STEP):
            piece: bytes = inflater.decompress(body[at : at + _ZSTD_STEP])
            pieces.append(piece)
            size += len(piece)
            if inflater.eof or size > INFLATED_MAX:
                return b"".join(pieces)
    except zstandard.ZstdError as error:
        raise BadCompression(f"a body is not compressed by Zstandard: {error}") from None
    raise BadCompression("a body ends inside its Zstandard frame")


def _missing_package_error(package: str) -> CompressionMissing:
    return CompressionMissing(
        f"a body is compressed by {package}, which is not installed (pip install {package})"
    )


_INFLATERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0: _inflate_zlib,
    COMPRESSION_ZLIB: _inflate_zlib,
    COMPRESSION_LZ4: _inflate_lz4,
    COMPRESSION_ZSTD: _inflate_zstd,
}

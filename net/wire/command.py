"""A remoting frame: its fields, and both encodings of its header.

Owns the frame layout (length, codec and header length, header, body) and the two header codecs. It
must never read a socket or know the meaning of a code. The transport finds the boundaries of
frames.

    0  int32  number of bytes that follow
    4  int32  codec << 24 | header length
    8  header (JSON text or the binary form), then the body to the end
"""

import json
import re
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from json.encoder import encode_basestring
from typing import Any, Final

from turbopump.engine.types import Buffer
from turbopump.net.wire.header import write_header

VERSION: Final = 513
"""The version of RocketMQ 5.5.0 (MQVersion ordinal); clients enable features by it."""

FRAME_MAX: Final = 16 << 20
"""Bytes of a frame with its 4 length bytes (com.rocketmq.remoting.frameMaxLength)."""

MAX_BODY: Final = FRAME_MAX - (64 << 10)
"""Maximum bytes of an answer's body: a frame without its header. A larger answer becomes an error
with a reason instead of a closed connection."""

HEADER_MAX: Final = 128 << 10
"""Maximum bytes of a header: 32,767 bytes of properties with each separator as an escape of six
bytes, and as much again. Parsing one of brackets only takes 11 ms."""

RESPONSE_FLAG: Final = 1
"""Bit of Command.flag: a response."""
ONEWAY_FLAG: Final = 2
"""Bit of Command.flag: a request that must not be answered."""

SMALL_BODY_MAX: Final = 2048
"""Bytes up to which a body is copied after its header: cheaper than another entry of a writev."""

LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
"""RocketMQ's LanguageCode; the index is the byte of the binary header."""

_LANGUAGE_BYTES: Final = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER: Final = 7
_FIXED: Final = struct.Struct(">hBhiii")
_INT16_MAX: Final = 0x7FFF
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_TEXT_ONLY: Final = frozenset({str})

Body = bytes | bytearray | memoryview | list[memoryview]
"""The bytes of a body, whole or as slices in order."""


class WireError(ValueError):
    """Bytes that are no frame of this protocol, or a command that does not fit into a frame."""


class Codec(IntEnum):
    """Encoding of a header; the fifth byte of a frame (RocketMQ: SerializeType)."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Command:
    """A request or response (RocketMQ: RemotingCommand).

    `code` is a RequestCode or ResponseCode; `opaque` is the number by which a connection pairs
    request and response; `flag` has the bits RESPONSE_FLAG and ONEWAY_FLAG; `language` (of
    LANGUAGES) and `version` are the sender's; `remark` is a response's text for people; `fields`
    are the extFields, in the order of the frame; a decoded body is always bytes; `codec` is that of
    the header.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION
    remark: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    body: Body = b""
    codec: Codec = Codec.JSON

    @property
    def is_response(self) -> bool:
        """Whether the command is a response."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the command is a request without a response."""
        return self.flag & ONEWAY_FLAG != 0


def new_request(
    code: int,
    header: Any = None,
    body: Body = b"",
    *,
    oneway: bool = False,
    fields: dict[str, str] | None = None,
) -> Command:
    """Build a request; `header` is a header dataclass, `fields` are added after its members and
    replace them.

    The transport sets the opaque.
    """
    flag = ONEWAY_FLAG if oneway else 0
    return Command(code, flag=flag, fields=_fields_of(header, fields), body=body)


def new_response(
    request: Command,
    code: int,
    remark: str | None = None,
    header: Any = None,
    body: Body = b"",
    *,
    fields: dict[str, str] | None = None,
) -> Command:
    """Build the response to `request`, with a JSON header for any codec of the request.

    Every client reads JSON, and RocketMQ's servers, too, respond in their own codec.
    """
    return Command(
        code,
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        fields=_fields_of(header, fields),
        body=body,
    )


def encode(command: Command) -> list[Buffer]:
    """Encode the whole frame, length bytes included, as buffers for one vectored write, in order;
    slices of a body beyond SMALL_BODY_MAX are passed on uncopied.

    Raises WireError if the frame exceeds FRAME_MAX or the command does not fit into its codec.
    """
    header = _encode_json(command) if command.codec is Codec.JSON else _encode_binary(command)
    body = command.body
    slices: list[Buffer] = list(body) if isinstance(body, list) else [body]
    body_size = sum(len(part) for part in slices)
    size = 8 + len(header) + body_size
    if size > FRAME_MAX:
        raise WireError(f"a frame of {size} bytes exceeds the limit of {FRAME_MAX}")
    head = struct.pack(">ii", size - 4, command.codec << 24 | len(header)) + header
    if body_size <= SMALL_BODY_MAX:
        return [b"".join((head, *slices))] if body_size else [head]
    return [head, *slices]


def decode(frame: Buffer) -> Command:
    """Decode a whole frame, its 4 length bytes included (they are not checked); the body is copied.
    Raises WireError, also for a header beyond HEADER_MAX.

    The function is as tolerant as RocketMQ: unknown members are ignored, values of extFields are
    converted to text, null values dropped, malformed UTF-8 replaced. A JSON header that is no
    object with a code is an error, so that the transport closes at once (RocketMQ closes, sometimes
    later).
    """
    view = memoryview(frame)
    size = len(view)
    if size < 8:
        raise WireError(f"a frame of {size} bytes has no room for its header length")
    header_size = int.from_bytes(view[5:8], "big")
    if 8 + header_size > size:
        raise WireError(f"header of {header_size} bytes in a frame of {size}")
    if header_size > HEADER_MAX:
        raise WireError(f"a header of {header_size} bytes exceeds {HEADER_MAX}")
    header = view[8 : 8 + header_size]
    if view[4] == Codec.JSON:
        command = _decode_json(header)
    elif view[4] == Codec.ROCKETMQ:
        command = _decode_binary(header)
    else:
        raise WireError(f"header codec {view[4]} is unknown")
    command.body = bytes(view[8 + header_size :])
    return command


def _fields_of(header: Any, fields: dict[str, str] | None) -> dict[str, str]:
    """Return the extFields of a command: the members of `header`, then `fields`, which replace
    them."""
    written = {} if header is None else write_header(header)
    if fields:
        written.update(fields)
    return written


def _encode_json(command: Command) -> bytes:
    """Encode a command's header as JSON."""
    quoted = encode_basestring
    pieces = [f'{{"code":{int(command.code)}']
    if command.fields:
        members = ",".join([f"{quoted(k)}:{quoted(v)}" for k, v in command.fields.items()])
        pieces.append(f',"extFields":{{{members}}}')
    pieces.append(f',"flag":{command.flag},"language":{quoted(command.language)}')
    pieces.append(f',"opaque":{command.opaque}')
    if command.remark is not None:
        pieces.append(f',"remark":{quoted(command.remark)}')
    pieces.append(f',"serializeTypeCurrentRPC":"JSON","version":{command.version}}}')
    return "".join(pieces).encode("utf-8", "replace")


def _decode_json(header: memoryview) -> Command:
    """Decode a JSON header to a Command without body; raises WireError."""
    text = str(header, "utf-8", "replace")
    try:
        members = json.loads(text)
        if not isinstance(members, dict) or members.get("code") is None:
            raise WireError("header is no JSON object with a code")
        if _SURROGATE.search(text):
            members = json.loads(json.dumps(members, ensure_ascii=False).encode("utf-8", "replace"))
        return Command(
            _to_int32(members["code"]),
            _to_int32(members.get("opaque")),
            _to_int32(members.get("flag")),
            _language_name(members.get("language")),
            _to_int32(members.get("version")),
            _text(members.get("remark")),
            _text_map(members.get("extFields")),
        )
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError(f"header is not JSON: {error}") from None


def _to_int32(value: Any) -> int:
    """Convert a number as fastjson does: text, booleans and floats too; null is 0."""
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    if value is None:
        return 0
    if not isinstance(value, int | float | str):
        raise WireError(f"header has {type(value).__name__} for a number")
    try:
        number = int(value)
    except (ValueError, OverflowError):
        raise WireError("header has text for a number") from None
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise WireError(f"header has {number} for an int32")
    return number


def _language_name(value: Any) -> str:
    """Return the entry of LANGUAGES for a peer's text; unknown texts are OTHER."""
    # Our constant, not the peer's text: it is kept as long as the connection.
    number = _LANGUAGE_BYTES.get(value, _OTHER) if isinstance(value, str) else _OTHER
    return LANGUAGES[number]


def _text(value: Any) -> str | None:
    """Convert a JSON value to text as fastjson does; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text_map(value: Any) -> dict[str, str]:
    """Convert a JSON object of extFields to texts; null values are dropped. Raises WireError for
    another value."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError("extFields is no JSON object")
    if not set(map(type, value.values())) - _TEXT_ONLY:
        return value
    texts: dict[str, str] = {}
    for key, member in value.items():
        if type(member) is str:
            texts[key] = member
        elif member is not None:
            text = _text(member)
            assert text is not None
            texts[key] = text
    return texts


def _encode_binary(command: Command) -> bytes:
    """Encode a command's header in RocketMQ's binary form; raises WireError for values that do
    not fit."""
    remark = (command.remark or "").encode("utf-8", "replace")
    pieces: list[bytes] = []
    for name, value in command.fields.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key) > _INT16_MAX:
            raise WireError(f"a field name of {len(key)} bytes exceeds {_INT16_MAX}")
        pieces += (len(key).to_bytes(2, "big"), key, len(text).to_bytes(4, "big"), text)
    fields = b"".join(pieces)
    if not -_INT16_MAX - 1 <= command.code <= _INT16_MAX:
        raise WireError(f"code {command.code} does not fit into a ROCKETMQ header")
    language = _LANGUAGE_BYTES.get(command.language, _OTHER)
    fixed = _FIXED.pack(
        command.code, language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, len(fields).to_bytes(4, "big"), fields))


def _decode_binary(header: memoryview) -> Command:
    """Decode a header in RocketMQ's binary form to a Command without body; raises WireError."""
    if len(header) < _FIXED.size:
        raise WireError(f"a ROCKETMQ header of {len(header)} bytes is too short")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    remark, at = _read_text(header, _FIXED.size, remark_size)
    fields_size, at = _read_length(header, at, 4)
    if not 0 <= fields_size <= len(header) - at:
        raise WireError(f"extFields of {fields_size} bytes in a header of {len(header)}")
    end = at + fields_size
    fields: dict[str, str] = {}
    while at < end:
        key_size, at = _read_length(header, at, 2)
        key, at = _read_text(header, at, key_size)
        value_size, at = _read_length(header, at, 4)
        fields[key], at = _read_text(header, at, value_size)
    name = LANGUAGES[language] if language < len(LANGUAGES) else LANGUAGES[_OTHER]
    return Command(code, opaque, flag, name, version, remark or None, fields, codec=Codec.ROCKETMQ)


def _read_length(header: memoryview, at: int, width: int) -> tuple[int, int]:
    """Read a signed big-endian length of `width` bytes at position `at`; returns (length,
    position after it). Raises WireError at the header's end."""
    if at + width > len(header):
        raise WireError("a ROCKETMQ header ends inside a length")
    return int.from_bytes(header[at : at + width], "big", signed=True), at + width


def _read_text(header: memoryview, at: int, size: int) -> tuple[str, int]:
    """Read `size` bytes of UTF-8 at position `at`; returns (text, position after it). Raises
    WireError at the header's end."""
    if not 0 <= size <= len(header) - at:
        raise WireError(f"a text of {size} bytes in a header of {len(header)}")
    return str(header[at : at + size], "utf-8", "replace"), at + size

"""Frames: both header codecs, tolerated errors of Java's clients, and errors that close a
connection."""

import json
import struct

import pytest

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import (
    FRAME_MAX,
    SMALL_BODY_MAX,
    Codec,
    Command,
    WireError,
    decode,
    encode,
    new_request,
    new_response,
)
from turbopump.net.wire.headers.offsets import GetMinOffsetRequest, GetMinOffsetResponse


def framed(header: bytes, body: bytes = b"", codec: int = 0) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">ii", size, codec << 24 | len(header)) + header + body


def test_json_header_is_byte_for_byte_rocketmqs() -> None:
    request = new_request(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest("T", 3))
    request.opaque, request.language = 77, "JAVA"
    header = (
        b'{"code":31,"extFields":{"topic":"T","queueId":"3"},"flag":0,"language":"JAVA",'
        b'"opaque":77,"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert encode(request) == [framed(header)]


def test_response_copies_the_opaque_and_is_json() -> None:
    request = Command(31, opaque=-5, codec=Codec.ROCKETMQ)
    response = new_response(
        request, ResponseCode.SUCCESS, "ok", GetMinOffsetResponse(9), fields={"x": "y"}
    )
    assert (response.opaque, response.flag, response.codec) == (-5, 1, Codec.JSON)
    assert response.is_response and not response.is_oneway
    assert response.fields == {"offset": "9", "x": "y"}
    assert decode(b"".join(encode(response))) == response


def test_oneway() -> None:
    assert new_request(15, oneway=True).is_oneway


def test_binary_header_layout() -> None:
    request = Command(34, 7, 2, "GO", 317, "re", {"k": "v", "": "e"}, b"body", Codec.ROCKETMQ)
    fields = b"\0\1k\0\0\0\1v" + b"\0\0\0\0\0\1e"
    header = struct.pack(">hBhiii", 34, 9, 317, 7, 2, 2) + b"re"
    header += struct.pack(">i", len(fields)) + fields
    assert encode(request) == [framed(header, b"body", 1)]
    assert decode(framed(header, b"body", 1)) == request


def test_empty_remark_of_a_binary_header_is_none() -> None:
    command = Command(0, remark="", codec=Codec.ROCKETMQ)
    assert decode(encode(command)[0]).remark is None


def test_codes_over_16_bits_do_not_fit_into_a_binary_header() -> None:
    with pytest.raises(WireError, match="200050"):
        encode(Command(200050, codec=Codec.ROCKETMQ))
    with pytest.raises(WireError, match="field name"):
        encode(Command(1, fields={"k" * 40_000: ""}, codec=Codec.ROCKETMQ))
    negative = Command(-14535, codec=Codec.ROCKETMQ)
    assert decode(encode(negative)[0]) == negative


def test_large_bodies_are_not_copied() -> None:
    log = bytearray(b"x" * 10_000)
    slices = [memoryview(log)[:5000], memoryview(log)[5000:]]
    buffers = encode(Command(0, body=slices))
    assert buffers[1] is slices[0] and buffers[2] is slices[1]
    small = encode(Command(0, body=[memoryview(b"a"), memoryview(b"b")]))
    assert len(small) == 1 and small[0].endswith(b"ab")
    assert len(encode(Command(0, body=b"x" * SMALL_BODY_MAX))) == 1
    assert len(encode(Command(0, body=b"x" * (SMALL_BODY_MAX + 1)))) == 2


def test_a_frame_over_the_limit_is_not_made() -> None:
    with pytest.raises(WireError, match="limit"):
        encode(Command(0, body=bytes(FRAME_MAX)))


def test_members_are_coerced_as_fastjson_does() -> None:
    header = {
        "code": "10",
        "opaque": 3.0,
        "flag": None,
        "version": True,
        "language": None,
        "remark": 5,
        "unknown": {"deep": []},
        "extFields": {
            "i": 1,
            "f": 1.5,
            "b": False,
            "n": None,
            "o": {"a": 1},
            "t": "x",
        },
    }
    command = decode(framed(json.dumps(header).encode()))
    assert command == Command(
        10, 3, 0, "OTHER", 1, "5", {"i": "1", "f": "1.5", "b": "false", "o": '{"a":1}', "t": "x"}
    )


def test_text_that_is_not_unicode_is_replaced() -> None:
    command = decode(framed(b'{"code":1,"remark":"\\ud800","extFields":{"k":"\xff"}}'))
    assert command.remark == "?"
    assert command.fields == {"k": "�"}
    assert b"?" in encode(Command(0, remark="\ud800"))[0]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"text",
        b"[]",
        b"5",
        b'"text"',
        b"{}",
        b"null",
        b'{"code":null}',
        b'{"code":[]}',
        b'{"code":"x"}',
        b'{"code":3000000000}',
        b'{"code":1e400}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1',
        b"[" * 100_000,
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"code":NaN}',
    ],
)
def test_json_headers_that_close_the_connection(header) -> None:
    with pytest.raises(WireError):
        decode(framed(header))


def binary(fields: bytes, remark_size: int = 0, fields_size: int | None = None) -> bytes:
    size = len(fields) if fields_size is None else fields_size
    fixed = struct.pack(">hBhiii", 1, 0, 0, 0, 0, remark_size)
    return fixed + struct.pack(">i", size) + fields


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"short",
        binary(b"", remark_size=5),
        binary(b"", remark_size=-1),
        binary(b"", fields_size=1),
        binary(b"", fields_size=-1),
        binary(b"\0"),
        binary(b"\0\5abc"),
        binary(b"\xff\xffabc"),
        binary(b"\0\1k\0\0\0\5v"),
        binary(b"\0\1k\0\0"),
        binary(b"\0\1k\xff\xff\xff\xffv"),
    ],
)
def test_binary_headers_that_close_the_connection(header) -> None:
    with pytest.raises(WireError):
        decode(framed(header, codec=1))


def test_trailing_bytes_of_a_binary_header_are_ignored() -> None:
    command = decode(framed(binary(b"\0\1k\0\0\0\1v") + b"more", codec=1))
    assert command.fields == {"k": "v"}


def test_unknown_language_byte() -> None:
    header = struct.pack(">hBhiii", 1, 99, 0, 0, 0, 0) + bytes(4)
    assert decode(framed(header, codec=1)).language == "OTHER"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\0",
        b"\0\0\0\3\0\0\0",
        struct.pack(">ii", 4, 100),
        struct.pack(">ii", 4, 2 << 24),
        struct.pack(">ii", 4, 0x00FFFFFF),
        framed(b"{}", codec=9),
    ],
)
def test_frames_that_close_the_connection(frame) -> None:
    with pytest.raises(WireError):
        decode(frame)

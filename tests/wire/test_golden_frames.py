"""Every golden frame: found, decoded as RocketMQ decodes it, encoded to the same bytes."""

import zlib

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import FRAME_MAX, Codec, decode, encode
from turbopump.pyx.frame import find_frames


def test_boundaries_are_found(frames) -> None:
    stream = b"".join(golden.frame for golden in frames)
    found, consumed, needed = find_frames(stream, len(stream), FRAME_MAX)
    assert [(golden.truth["at"], golden.truth["length"]) for golden in frames] == found
    assert (consumed, needed) == (len(stream), 0)


def test_decoded_as_rocketmq_does(frames) -> None:
    for golden in frames:
        command, truth = decode(memoryview(golden.frame)), golden.truth
        assert command.codec is Codec[truth["codec"]], golden
        assert command.code == truth["code"], golden
        assert command.opaque == truth["opaque"], golden
        assert command.flag == truth["flag"], golden
        assert command.language == truth["language"], golden
        assert command.version == truth["version"], golden
        assert command.remark == truth["remark"], golden
        assert command.fields == (truth["extFields"] or {}), golden
        assert isinstance(command.body, bytes)
        assert len(command.body) == truth["bodyLength"], golden
        assert (zlib.crc32(command.body) if command.body else 0) == truth["bodyCrc32"], golden
        assert command.is_response == (truth["kind"] == "response"), golden
        assert command.is_oneway == (truth["kind"] == "oneway"), golden


def test_encoded_to_the_same_bytes(frames) -> None:
    """Frames encode to the same bytes, except that an empty extFields object is omitted (RocketMQ
    writes it where a request or response has a header class without values).
    """
    for golden in frames:
        header_size = int.from_bytes(golden.frame[5:8], "big")
        header = golden.frame[8 : 8 + header_size]
        encoded = b"".join(encode(decode(golden.frame)))
        if golden.truth["codec"] == "JSON":
            header = header.replace(b'"extFields":{},', b"")
        size = 4 + len(header) + len(golden.body)
        word = golden.frame[4] << 24 | len(header)
        expected = size.to_bytes(4, "big") + word.to_bytes(4, "big") + header + golden.body
        assert encoded == expected, golden


def test_codes_are_rocketmqs(code_names) -> None:
    for number, name in code_names["request"].items():
        if not name.startswith("DLEDGER"):
            assert RequestCode[name] == int(number)
    for number, name in code_names["response"].items():
        assert ResponseCode[name] == int(number)
    known = {name for name in code_names["request"].values() if not name.startswith("DLEDGER")}
    assert {code.name for code in RequestCode} == known
    assert {code.name for code in ResponseCode} == set(code_names["response"].values())

"""The edge cases of the traffic codec, each alone: headers read natively and headers left to
Python."""

from dataclasses import dataclass

import pytest
from csrc import wire_tables
from tests.traffic_model import CLASSES, check, read_members

from turbopump.net.wire.command import Command, encode
from turbopump.net.wire.header import Int32, read_bool, read_text
from turbopump.pyx import traffic

FIELDS = (
    b'"a":"PG","b":"T","c":"TBW102","d":"4","e":"0","f":"0","g":"1700000000000","h":"0",'
    b'"i":"KEYS\\u0001k\\u0002","j":"0","k":"false","l":"3","m":"false"'
)
HEADER = (
    b'{"code":310,"extFields":{' + FIELDS + b'},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}'
)
PULL = (
    b'{"code":11,"language":"GO","version":317,"opaque":7,"flag":0,"remark":"","extFields":{'
    b'"commitOffset":"0","consumerGroup":"G","maxMsgNums":"32","queueId":"0","queueOffset":"5",'
    b'"subVersion":"0","suspendTimeoutMillis":"20000","sysFlag":"2","topic":"T"}}'
)


def framed(header: bytes, body: bytes = b"body", codec: int = 0) -> bytes:
    sizes = (4 + len(header) + len(body)).to_bytes(4, "big") + (codec << 24 | len(header)).to_bytes(
        4, "big"
    )
    return sizes + header + body


def verdict(header: bytes, old: bytes = b"", new: bytes = b"") -> int:
    """The native result for a header with a single change, checked against net.wire."""
    assert header.count(old) == 1 or not old, f"{old!r} is not there once"
    return check(framed(header.replace(old, new) if old else header))


@pytest.mark.parametrize("header", [HEADER, PULL])
def test_an_ordinary_request_is_plain(header) -> None:
    assert verdict(header) == traffic.PLAIN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"e":"0"', b'"e":"2147483647"'),
        (b'"e":"0"', b'"e":"-2147483648"'),
        (b'"e":"0"', b'"e":"+0000000000000000007"'),
        (b'"e":"0"', b'"e":"\\u0031"'),
        (b'"g":"1700000000000"', b'"g":"9223372036854775807"'),
        (b'"g":"1700000000000"', b'"g":"-9223372036854775808"'),
        (b'"m":"false"', b'"m":"TrU\\u0065"'),
        (b'"m":"false"', b'"m":"\\u212a"'),
        (b'"m":"false"', b'"m":""'),
        (b'"j":"0",', b""),
        (b'"l":"3"', b'"l":""'),
        (b'"b":"T"', b'"b":""'),
        (b'"b":"T"', b'"b":"\\u0000\\u00e9\\u20ac\\/\\n"'),
        (b'"b":"T"', '"b":"é€😀\x7f"'.encode()),
        (b'"a":"PG"', b'"a":"PG","n":"x","n":"y","A":"\xff","bname":""'),
        (b'"opaque":7', b'"opaque":-2147483648'),
        (b'"opaque":7', b'"opaque":-0'),
        (b'"opaque":7,', b""),
        (b'"language":"JAVA",', b""),
        (b'"language":"JAVA"', b'"language":"NODE_JS"'),
        (b'"flag":0', b'"flag":2'),
        (b'"flag":0', b'"flag":-2'),
        (b'{"code"', b' \t\r\n{ "code"'),
        (b'"version":513}', b'"version" : 513 }\n'),
        (b'"version":513', b'"version":513,"x":"\xff","remark":null,"z":true'),
    ],
)
def test_unusual_but_clear_requests_are_plain(old, new) -> None:
    assert verdict(HEADER, old, new) == traffic.PLAIN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"b":"T"', b'"b":"T","b":"U"'),
        (b'"b":"T"', b'"b":"T","\\u0062":"U"'),
        (b'"b":"T"', b'"B":"T"'),
        (b'"b":"T"', b'"b":null'),
        (b'"b":"T"', b'"b":17'),
        (b'"b":"T"', b'"b":"\xff"'),
        (b'"b":"T"', b'"b":"\xc0\xaf"'),
        (b'"b":"T"', b'"b":"\xed\xa0\x80"'),
        (b'"b":"T"', b'"b":"\xf4\x90\x80\x80"'),
        (b'"b":"T"', b'"b":"\xe2\x82"'),
        (b'"b":"T"', b'"b":"\\ud83d\\ude00"'),
        (b'"b":"T"', b'"b":"\\x41"'),
        (b'"b":"T"', b'"b":"\\u00g0"'),
        (b'"b":"T"', b'"b":"a\tb"'),
        (b'"e":"0"', b'"e":"2147483648"'),
        (b'"e":"0"', b'"e":"-2147483649"'),
        (b'"e":"0"', b'"e":"00000000000000000000"'),
        (b'"e":"0"', b'"e":""'),
        (b'"e":"0"', b'"e":"-"'),
        (b'"e":"0"', b'"e":" 1"'),
        (b'"e":"0"', b'"e":"1.0"'),
        (b'"g":"1700000000000"', b'"g":"9223372036854775808"'),
        (b'"g":"1700000000000"', b'"g":"-9223372036854775809"'),
        (b'"l":"3"', b'"l":"x"'),
        (b'"c":"TBW102",', b""),
        (b'"flag":0', b'"flag":1'),
        (b'"flag":0', b'"flag":3'),
        (b'"opaque":7', b'"opaque":07'),
        (b'"opaque":7', b'"opaque":7.0'),
        (b'"opaque":7', b'"opaque":7e0'),
        (b'"opaque":7', b'"opaque":"7"'),
        (b'"opaque":7', b'"opaque":null'),
        (b'"opaque":7', b'"opaque":2147483648'),
        (b'"opaque":7', b'"opaque":4294967303'),
        (b'"opaque":7', b'"opaque":7,"opaque":8'),
        (b'"flag":0', b'"flag":0,"flag":2'),
        (b'"code":310', b'"code":310,"code":320'),
        (b'"code":310', b'"code":311'),
        (b'"code":310', b'"code":4294967606'),
        (b'"version":513', b'"version":513,"version":0'),
        (b'"version":513', b'"version":513,"extFields":{}'),
        (b'"version":513', b'"version":513,"x":[]'),
        (b'"version":513', b'"version":513,"x":1.5'),
        (b'"version":513', b'"version":513,"x":nul'),
        (b'"version":513', b'"version":513,'),
        (b'"version":513}', b'"version":513}}'),
        (b'"version":513}', b'"version":513'),
        (b'"language":"JAVA"', b'"language":"KOTLIN"'),
        (b'"language":"JAVA"', b'"language":"JAVA","language":"GO"'),
        (b'{"code"', b'\xef\xbb\xbf{"code"'),
    ],
)
def test_doubtful_requests_are_left_to_python(old, new) -> None:
    assert verdict(HEADER, old, new) == traffic.OTHER


def binary(*fields: tuple[bytes, bytes], behind: bytes = b"") -> bytes:
    inner = b"".join(
        len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value
        for key, value in fields
    )
    return b"\x01\x36\x00\x02\x01" + bytes(12) + len(inner).to_bytes(4, "big") + inner + behind


SEND = tuple(
    zip([b"%c" % letter for letter in b"abcdefgh"], b"PG T D 4 0 0 1 0".split(), strict=True)
)


def test_binary_headers() -> None:
    assert check(framed(binary(*SEND), codec=1)) == traffic.PLAIN
    assert check(framed(binary(*SEND, (b"m", b""), (b"x", b"\xff")), codec=1)) == traffic.PLAIN
    for odd in (
        binary(*SEND, (b"b", b"T")),
        binary(*SEND[:-1]),
        binary(*SEND, (b"i", b"\xff")),
        binary(*SEND, (b"j", b"1\xff")),
        binary(*SEND, behind=b"\0"),
        binary(*SEND, behind=b"\0\1m\0\0\0\4true"),
        binary(*SEND)[:-1],
        binary(*SEND)[:20],
    ):
        assert check(framed(odd, codec=1)) == traffic.OTHER


@pytest.mark.parametrize("size", [0, 4, 7])
def test_an_invalid_frame_is_bad(size) -> None:
    assert check(framed(HEADER)[:size]) == traffic.BAD
    assert check(framed(HEADER, b"")[:-1]) == traffic.BAD
    assert check(framed(HEADER, codec=2)) == traffic.BAD


def test_a_send_needs_a_body_and_a_pull_none() -> None:
    assert check(framed(HEADER, b"")) == traffic.OTHER
    assert check(framed(PULL, b"")) == traffic.PLAIN


def test_escapes_need_a_scratch_as_large_as_the_header() -> None:
    assert traffic.decode(framed(HEADER), len(HEADER))[0] == traffic.PLAIN
    assert traffic.decode(framed(HEADER), len(HEADER) - 1)[0] == traffic.OTHER
    assert traffic.decode(framed(PULL), 0)[0] == traffic.PLAIN


def request(code: int, fields: dict[str, str]) -> bytes:
    return b"".join(map(bytes, encode(Command(code, 1, fields=fields, body=b"b"))))


@pytest.mark.parametrize("code", traffic.CODES)
def test_each_field_of_a_class_is_read(code) -> None:
    members = read_members(code)
    fields = {key: str(number) for number, (_, key, _, _) in enumerate(members, 1)}
    fields |= {key: "true" for _, key, read, _ in members if read is read_bool}
    assert check(request(code, fields)) == traffic.PLAIN
    header = traffic.decode(request(code, fields))[1]["header"]
    assert list(header) == [name for name, _, _, _ in members]
    for name, key, read, is_required in members:
        assert header[name] == (
            fields[key].encode()
            if read is read_text
            else True
            if read is read_bool
            else int(fields[key])
        )
        rest = {other: value for other, value in fields.items() if other != key}
        assert check(request(code, rest)) == (traffic.OTHER if is_required else traffic.PLAIN)
        if read is not read_text and read is not read_bool:
            assert check(request(code, rest | {key: "x"})) == traffic.OTHER


def test_codes_and_classes_equal_the_table() -> None:
    assert {code: cls for code, (_, cls) in wire_tables.REQUESTS.items()} == CLASSES
    assert set(traffic.CODES) == set(CLASSES)


def test_a_member_without_a_reader_is_refused() -> None:
    @dataclass
    class Ratio:
        rate: float

    @dataclass
    class MaybeLong:
        offset: int | None = None

    @dataclass
    class Counted:
        number: Int32 = 0

    for cls in (Ratio, MaybeLong, Counted):
        with pytest.raises(ValueError, match=r"^\w+\.\w+: traffic_fields.h cannot read it"):
            wire_tables.members_of(cls)

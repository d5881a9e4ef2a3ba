"""Templates of sends against the decoder: a match has the results of decoding the frame, after any
change of its bytes.
"""

import json
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from turbopump.net.wire.command import Codec, encode, new_request
from turbopump.net.wire.headers.send import SendMessageRequest, write_send
from turbopump.pyx import traffic

KEY = "UNIQ_KEY\x017F0000010000558C00000000000000"
PROPERTIES = [
    f"{KEY}EF\x02WAIT\x01true\x02KEYS\x01order-1 é\x02",
    f"{KEY}EF\x02WAIT\x01true\x02",
    f"{KEY}EF\x02KEYS\x01order-1 k2\x02TAGS\x01TagA\x02WAIT\x01false\x02",
    f'KEYS\x01k\x02shop\x01north\x02{KEY}EF\x02kind\x01é\x02quote\x01"\\\x02TAGS\x01b',
    f"{KEY}EF\x02" + "".join(f"own{n}\x01{n}\x02" for n in range(9)),
    "WAIT\x01true\x02",
    "",
    None,
]
INTERESTING = b'\x00\x01\x02\x1f "\\,:{}[]-+.0179eE/anrtu\x7f\x80\xc3\xff'


def header_of(properties: str | None, queue_id: int = 3, born_ms: int = 1_800_000_000_000) -> Any:
    return SendMessageRequest(
        producer_group="producers",
        topic="TopicTest",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=born_ms,
        flag=0,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name="broker-a",
    )


def frame_of(code: int, codec: int, header: bytes, body: bytes) -> bytes:
    sizes = (4 + len(header) + len(body)).to_bytes(4, "big")
    return sizes + (codec << 24 | len(header)).to_bytes(4, "big") + header + body


def own(code: int, codec: Codec, header: Any, opaque: int, body: bytes = b"body") -> bytes:
    """A frame as our own client writes it."""
    command = new_request(code, fields=write_send(code, header), body=body)
    command.opaque, command.codec = opaque, codec
    return b"".join(map(bytes, encode(command)))


def java(code: int, header: Any, opaque: int, body: bytes = b"body") -> bytes:
    """A JSON frame as RocketMQ's Java client writes it: names in alphabetical order."""
    members = {
        "code": code,
        "extFields": dict(sorted(write_send(code, header).items())),
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
    return frame_of(code, 0, text.encode(), body)


def go(code: int, header: Any, opaque: int, body: bytes = b"body") -> bytes:
    """A JSON frame as the Go client writes it, with spaces after its separators."""
    members = {
        "code": code,
        "language": "GO",
        "version": 317,
        "opaque": opaque,
        "flag": 0,
        "remark": "",
        "extFields": dict(sorted(write_send(code, header).items())),
    }
    return frame_of(code, 0, json.dumps(members).encode(), body)


def forms(code: int, header: Any, opaque: int) -> list[bytes]:
    """The frames of a send as each kind of client writes it."""
    return [
        own(code, Codec.JSON, header, opaque),
        own(code, Codec.ROCKETMQ, header, opaque),
        java(code, header, opaque),
        go(code, header, opaque),
    ]


def check(learned: bytes, frame: bytes) -> bool:
    """Whether the frame matches; a match must give the decoder's results."""
    found = traffic.match(learned, frame)[1]
    if found is None:
        return False
    verdict, members = traffic.decode(frame)
    assert verdict == traffic.PLAIN, frame
    assert found[0] == members
    assert (True, found[1]) == traffic.scan_properties(members["header"]["properties"])
    return True


@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize("form", range(4))
def test_the_next_send_of_a_client_matches(code: int, form: int) -> None:
    """Other numbers of other lengths, and other values of properties."""
    for one, other in (
        (f"{KEY}EF\x02WAIT\x01true\x02", f"{KEY}00\x02WAIT\x01true\x02"),
        (f"{KEY}EF\x02KEYS\x01a\x02TAGS\x01b\x02", f"{KEY}0\x02KEYS\x01order 17\x02TAGS\x01T\x02"),
        (f"KEYS\x01a\x02{KEY}EF\x02TAGS\x01b", f"KEYS\x01bcd\x02{KEY}1\x02TAGS\x01TagA"),
        (f"{KEY}EF\x02shop\x01north\x02", f"{KEY}EF\x02shop\x01{'south' * 5}\x02"),
        ("WAIT\x01true\x02", "WAIT\x01true\x02"),
        ("", ""),
    ):
        learned = forms(code, header_of(one), 7)[form]
        for queue_id, born_ms, opaque in ((3, 1_800_000_000_000, 8), (12, 5, 2**31 - 1), (0, 0, 0)):
            frame = forms(code, header_of(other, queue_id, born_ms), opaque)[form]
            assert check(learned, frame), (learned, frame)


def test_a_value_with_a_meaning_is_constant() -> None:
    learned = forms(310, header_of(f"{KEY}EF\x02WAIT\x01true\x02"), 7)
    others = forms(310, header_of(f"{KEY}EF\x02WAIT\x01fals\x02"), 7)
    for one, other in zip(learned, others, strict=True):
        assert check(one, one)
        assert not check(one, other)


@pytest.mark.parametrize(
    "properties",
    [
        f"{KEY}EF\x02DELAY\x011\x02",
        f"{KEY}EF\x02TRAN_MSG\x01true\x02",
        f"{KEY}EF\x02PGROUP\x01producers\x02",
        f"{KEY}EF\x02KEYS\x01é\x02",
        f"{KEY}EF\x02{KEY}EF\x02",
    ],
)
def test_special_properties_are_not_learned(properties: str) -> None:
    for frame in forms(310, header_of(properties), 7):
        assert traffic.match(frame, frame) == (False, None)


def test_a_long_header_is_not_learned() -> None:
    for frame in forms(310, header_of(f"{KEY}EF\x02own\x01{'é' * 700}\x02"), 7):
        assert traffic.match(frame, frame) == (False, None)
    for learned, frame in zip(
        forms(310, header_of(f"{KEY}EF\x02own\x01a\x02"), 7),
        forms(310, header_of(f"{KEY}EF\x02own\x01{'a' * 4000}\x02"), 7),
        strict=True,
    ):
        assert traffic.match(learned, frame) == (True, None)


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("form", range(4))
def test_each_byte_of_a_frame_changed(form: int, properties: str | None) -> None:
    """Each byte is replaced, dropped, and preceded by another; the header's size follows in half of
    these frames.
    """
    learned = forms(310, header_of(properties), 7)[form]
    for place in range(4, len(learned)):
        for byte in INTERESTING:
            check(learned, learned[:place] + bytes([byte]) + learned[place + 1 :])
            longer = learned[:place] + bytes([byte]) + learned[place:]
            check(learned, longer)
            check(learned, resized(longer, len(longer) - len(learned)))
        shorter = learned[:place] + learned[place + 1 :]
        check(learned, shorter)
        check(learned, resized(shorter, -1))
        check(learned, learned[:place])


def resized(frame: bytes, more: int) -> bytes:
    """The frame whose header has `more` bytes more."""
    head = int.from_bytes(frame[4:8], "big") + more
    return frame[:4] + (head % (1 << 32)).to_bytes(4, "big") + frame[8:]


numbers = st.sampled_from(
    [
        "0",
        "7",
        "00",
        "07",
        "-1",
        "+1",
        "2147483647",
        "2147483648",
        "9" * 18,
        "9" * 19,
        "9" * 20,
        "",
        "1.5",
        "1e3",
        " 1",
        "1 ",
        "0x1",
        "\\u0031",
        "é",
        '1"',
        "null",
    ]
)
texts = st.sampled_from(
    [*filter(None, PROPERTIES), f"{KEY}EF", f"{KEY}EF\x02\x02", f"{KEY}\x00EF\x02", "\x02", "\x01"]
)
escapes = st.sampled_from(
    [
        ("\\u0001", "\\u0001"),
        ("\\u0001", "\x01"),
        ("true", "tru\\u0065"),
        ("T", "\\u0054"),
        ("\\u0002", "\\u0002\\u0002"),
        ("opaque", "opa\\u0071ue"),
        ("-", "\\/"),
        (":", " : "),
    ]
)
orders = st.permutations(["code", "extFields", "flag", "language", "opaque", "version"])


@st.composite
def json_sends(draw: st.DrawFn) -> bytes:
    """A JSON header of a send: any order of members, numbers and properties of any kind, repeated
    fields, escapes and spaces.
    """
    code = draw(st.sampled_from([310, 310, 310, 10, 320]))
    fields = write_send(code, header_of(draw(texts)))
    e, g = ("queueId", "bornTimestamp") if code == 10 else ("e", "g")
    if draw(st.integers(0, 2)) == 0:
        fields[draw(st.sampled_from([e, g]))] = draw(numbers)
    inner = [f'"{name}":{json.dumps(value, ensure_ascii=False)}' for name, value in fields.items()]
    if draw(st.integers(0, 3)) == 0:
        draw(st.randoms(use_true_random=False)).shuffle(inner)
    if draw(st.integers(0, 9)) == 0:
        inner.append(draw(st.sampled_from([*inner, '"opaque":"7"', '"queueId":"1"'])))
    opaque = draw(numbers) if draw(st.integers(0, 3)) == 0 else str(draw(st.integers(0, 99_999)))
    values = {
        "code": str(code),
        "extFields": f"{{{','.join(inner)}}}",
        "flag": "0",
        "language": '"JAVA"',
        "opaque": opaque,
        "version": "513",
    }
    names = draw(orders) if draw(st.integers(0, 3)) == 0 else sorted(values)
    text = ",".join(f'"{name}":{values[name]}' for name in names)
    if draw(st.integers(0, 3)) == 0:
        text = text.replace(*draw(escapes))
    return frame_of(code, 0, f"{{{text}}}".encode(), draw(st.binary(min_size=1, max_size=9)))


@settings(max_examples=600)
@given(json_sends(), json_sends())
def test_any_two_sends_of_json(learned: bytes, frame: bytes) -> None:
    check(learned, learned)
    event(f"another frame matches: {check(learned, frame)}")


@st.composite
def binary_sends(draw: st.DrawFn) -> bytes:
    """A ROCKETMQ header of a send: numbers and properties of any kind, any order, repeated fields,
    wrong sizes.
    """
    code = draw(st.sampled_from([310, 310, 310, 10, 320]))
    fields = write_send(code, header_of(draw(texts)))
    e, g = ("queueId", "bornTimestamp") if code == 10 else ("e", "g")
    if draw(st.integers(0, 2)) == 0:
        fields[draw(st.sampled_from([e, g]))] = draw(numbers)
    parts = []
    for name, value in fields.items():
        wrong = draw(st.sampled_from([0] * 60 + [-1, 1, 1 << 30]))
        size = len(value.encode()) + wrong
        one, other = name.encode(), value.encode()
        parts.append(len(one).to_bytes(2, "big") + one + (size % 2**32).to_bytes(4, "big") + other)
    if draw(st.integers(0, 3)) == 0:
        draw(st.randoms(use_true_random=False)).shuffle(parts)
    if draw(st.integers(0, 9)) == 0:
        parts.append(draw(st.sampled_from(parts)))
    rest = b"".join(parts)
    opaque = draw(st.sampled_from([0, 7, 2**31 - 1, 2**31, 2**32 - 1]))
    remark = draw(st.sampled_from([b"", b"", b"", b"remark"]))
    header = code.to_bytes(2, "big") + b"\x00\x02\x01" + opaque.to_bytes(4, "big") + bytes(4)
    header += len(remark).to_bytes(4, "big") + remark
    header += len(rest).to_bytes(4, "big") + rest
    return frame_of(code, 1, header, draw(st.binary(min_size=1, max_size=9)))


@settings(max_examples=600)
@given(binary_sends(), binary_sends())
def test_any_two_sends_of_rocketmq(learned: bytes, frame: bytes) -> None:
    check(learned, learned)
    event(f"another frame matches: {check(learned, frame)}")

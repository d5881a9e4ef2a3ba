"""The codec of traffic requests: headers as each client writes them, properties and answers.

Back of the envelope: a JSON header of a send has some 350 bytes and 30 strings. Read byte by byte
that is 350 steps; read in words of eight bytes, with a dozen steps for each string, some 100 to 200
ns. If a request cost much more, the codec would limit the broker below a million messages a second.
"""

import ctypes
import json
from typing import Any

import pytest

from turbopump.net.wire.command import Codec, encode, new_request
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, write_send
from turbopump.pyx import traffic

ROUNDS = 10_000
UNIQUE_KEY = "7F0000010000558C00000000000000EF"
PROPERTIES = f"UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
SEND = SendMessageRequest(
    "please_rename_unique_group_name",
    "TopicTest",
    "TBW102",
    4,
    3,
    0,
    1_800_000_000_000,
    0,
    PROPERTIES,
    0,
    False,
    None,
    False,
    "broker-a",
)
PULL = PullMessageRequest(
    "please_rename_unique_group_name_4",
    "TopicTest",
    3,
    123_456,
    32,
    3,
    123_456,
    15_000,
    1_800_000_000_000,
    None,
    "TAG",
    2_147_483_647,
    None,
    None,
    "broker-a",
)


def json_frame(members: dict[str, Any], fields: dict[str, str]) -> bytes:
    """A request frame with a JSON header of these members, whose extFields are `fields`, and a body
    of a single byte."""
    members = {key: fields if key == "extFields" else value for key, value in members.items()}
    header = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
    size = len(header).to_bytes(4, "big")
    return (len(header) + 5).to_bytes(4, "big") + size + header + b"x"


def java_frame(code: int, fields: dict[str, str]) -> bytes:
    """A request frame as RocketMQ's Java client writes it: names in alphabetical order."""
    members = {
        "code": code,
        "extFields": {},
        "flag": 0,
        "language": "JAVA",
        "opaque": 12345,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    return json_frame(members, fields)


def go_frame(code: int, fields: dict[str, str]) -> bytes:
    """A request frame as RocketMQ's Go client writes it: names in the order of its structure,
    fields sorted."""
    members = {
        "code": code,
        "language": "GO",
        "version": 317,
        "opaque": 12345,
        "flag": 0,
        "remark": "",
        "extFields": {},
    }
    return json_frame(members, dict(sorted(fields.items())))


def own_frame(code: int, header: Any, codec: Codec) -> bytes:
    """A request frame as Turbopump's own client writes it, with this header codec."""
    request = new_request(code, None if code != 11 else header, b"x")
    if code != 11:
        request.fields = write_send(code, header)
    request.codec = codec
    return b"".join(map(bytes, encode(request)))


def fields_of_pull() -> dict[str, str]:
    """The header fields of a pull."""
    return new_request(11, PULL).fields


FRAMES = {
    "310 JSON Java": java_frame(310, write_send(310, SEND)),
    "10 JSON Go": go_frame(10, write_send(10, SEND)),
    "310 JSON own": own_frame(310, SEND, Codec.JSON),
    "310 ROCKETMQ": own_frame(310, SEND, Codec.ROCKETMQ),
    "11 JSON Java": java_frame(11, fields_of_pull()),
    "11 JSON Go": go_frame(11, fields_of_pull()),
    "11 ROCKETMQ": own_frame(11, PULL, Codec.ROCKETMQ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_decode(measure: Any, kind: str) -> None:
    """Measure the decoding of a request frame of this kind."""
    frame = FRAMES[kind]

    def decode() -> None:
        assert traffic.decode_repeatedly(frame, ROUNDS) == ROUNDS

    measure(f"header {kind}", decode, ROUNDS)


@pytest.mark.parametrize("kind", FRAMES)
def test_decode_limit(measure: Any, limits: ctypes.CDLL, kind: str) -> None:
    """Look at each byte of the frame once, one after the other."""
    frame = FRAMES[kind]
    size = len(frame)
    measure(f"header {kind}", lambda: limits.limit_bytes(frame, size, ROUNDS), ROUNDS)


@pytest.mark.parametrize("kind", [kind for kind in FRAMES if not kind.startswith("11 ")])
def test_match(measure: Any, kind: str) -> None:
    """Compare a send with the template of its connection, instead of decoding it."""
    frame = FRAMES[kind]

    def match() -> None:
        assert traffic.match_repeatedly(frame, ROUNDS) == ROUNDS

    measure(f"template {kind}", match, ROUNDS)


def test_properties(measure: Any) -> None:
    """Measure the scan of a send's properties."""
    text = PROPERTIES.encode()

    def scan() -> None:
        assert traffic.scan_repeatedly(text, ROUNDS) == ROUNDS

    measure("properties of a send", scan, ROUNDS)


def test_properties_limit(measure: Any, limits: ctypes.CDLL) -> None:
    """Measure the C loop over each byte of the same properties."""
    text, size = PROPERTIES.encode(), len(PROPERTIES)
    measure("properties of a send", lambda: limits.limit_bytes(text, size, ROUNDS), ROUNDS)


def test_send_answer(measure: Any) -> None:
    """Measure the encoding of a send's answer."""

    def answer() -> None:
        assert traffic.send_reply(
            0,
            12345,
            3,
            123_456,
            [1_234_567_890],
            bytes(8),
            UNIQUE_KEY.encode(),
            None,
            b"DefaultRegion",
            True,
            rounds=ROUNDS,
        )

    measure("answer of a send", answer, ROUNDS)

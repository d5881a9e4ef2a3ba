"""The native codec of traffic requests against net.wire: the same values, and the same requests
recognized.
"""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.traffic_model import CLASSES, PAIRS_MAX, SENDS, check, check_properties, reference

from turbopump.net.wire import properties as names
from turbopump.net.wire.command import FRAME_MAX, LANGUAGES, Command, encode, new_response
from turbopump.net.wire.header import members_of, read_bool, read_int32, read_int64, read_text
from turbopump.net.wire.headers.pull import PullMessageResponse
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.properties import encode_properties
from turbopump.pyx import traffic

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBER = st.sampled_from(["0", "4", "-1", "1700000000000", "+7", "007", "-0", "2147483647"])
FLAG = st.sampled_from(["true", "false", "TRUE", "tRuE", "yes", "tru", "0", ""])
BINARY_CODES = [code for code in traffic.CODES if code < 1 << 15]
"""A code has two bytes in the binary header."""
UNKNOWN = st.sampled_from(["n", "bname", "ReqT", "lo", "AccessKey", "o", "A", "é", "", "topics"])
SPACE = st.text(" \t\r\n", max_size=2)


def texts_of(kind: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return kind.map(str)


VALUES_OF = {
    read_text: TEXT,
    read_bool: FLAG,
    read_int32: texts_of(INT32),
    read_int64: texts_of(INT64),
}


@st.composite
def fields_of(draw: st.DrawFn, code: int) -> dict[str, str]:
    """Good extFields: all that is required, some that is not, in any order."""
    fields = {}
    for _, key, read, is_required in members_of(CLASSES[code]):
        if is_required:
            fields[key] = draw(VALUES_OF[read])
        elif draw(st.booleans()):
            fields[key] = draw(VALUES_OF[read] | st.just(""))
    for key in draw(st.lists(UNKNOWN, max_size=3)):
        fields.setdefault(key, draw(TEXT))
    pairs = list(fields.items())
    draw(st.randoms(use_true_random=False)).shuffle(pairs)
    return dict(pairs)


@st.composite
def quoted(draw: st.DrawFn, text: str) -> str:
    """A JSON string of the text: escapes as they must be, or more of them."""
    style = draw(st.integers(0, 2))
    if style == 0:
        return json.dumps(text, ensure_ascii=False)
    pieces = []
    for letter in text:
        must = letter in '"\\' or letter < " "
        if ord(letter) < 0x10000 and (must or draw(st.integers(0, 9)) == 0):
            digits = f"{ord(letter):04x}"
            pieces.append("\\u" + (digits.upper() if style == 1 else digits))
        else:
            pieces.append(letter.replace("/", "\\/"))
    return '"' + "".join(pieces) + '"'


@st.composite
def json_object(draw: st.DrawFn, members: list[tuple[str, str]]) -> str:
    """A JSON object of members whose values are JSON, with spaces where JSON permits them."""
    loose = draw(st.booleans())

    def space() -> str:
        return draw(SPACE) if loose else ""

    parts = [
        f"{space()}{json.dumps(key, ensure_ascii=False)}{space()}:{space()}{value}{space()}"
        for key, value in members
    ]
    return f"{{{','.join(parts) or space()}}}"


def frame_of(codec: int, header: bytes, body: bytes) -> bytes:
    head = codec << 24 | len(header)
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + head.to_bytes(4, "big") + header + body


@st.composite
def json_members(draw: st.DrawFn) -> tuple[list[tuple[str, str]], bytes]:
    """The members of a valid JSON header and the body after it."""
    code = draw(st.sampled_from(traffic.CODES))
    fields = draw(fields_of(code))
    inner = [(key, draw(quoted(value))) for key, value in fields.items()]
    members = [("code", str(code)), ("extFields", draw(json_object(inner)))]
    more = {
        "flag": texts_of(INT32.map(lambda flag: flag & ~1)),
        "language": st.sampled_from(LANGUAGES).map(json.dumps),
        "opaque": texts_of(INT32),
        "version": texts_of(INT32),
        "remark": st.just("null") | TEXT.flatmap(quoted),
        "serializeTypeCurrentRPC": st.just('"JSON"'),
        "other": st.sampled_from(["true", "false", "null", "-17", "0", '"\\ud83d\\ude00"']),
    }
    for key, values in more.items():
        if draw(st.booleans()):
            members.append((key, draw(values)))
    draw(st.randoms(use_true_random=False)).shuffle(members)
    return members, draw(st.binary(min_size=code in SENDS, max_size=50))


@st.composite
def json_frames(draw: st.DrawFn) -> bytes:
    members, body = draw(json_members())
    header = draw(SPACE) + draw(json_object(members)) + draw(SPACE)
    return frame_of(0, header.encode(), body)


@st.composite
def binary_frames(draw: st.DrawFn) -> bytes:
    code = draw(st.sampled_from(BINARY_CODES))
    int16 = st.integers(-(1 << 15), (1 << 15) - 1)
    command = Command(
        code,
        draw(INT32),
        draw(INT32.map(lambda flag: flag & ~1)),
        draw(st.sampled_from(LANGUAGES)),
        draw(int16),
        draw(st.none() | TEXT),
        draw(fields_of(code)),
        draw(st.binary(min_size=code in SENDS, max_size=50)),
        codec=1,  # type: ignore[arg-type]
    )
    return b"".join(map(bytes, encode(command)))


FRAMES = json_frames() | binary_frames()


@settings(max_examples=400)
@given(FRAMES)
def test_good_requests_are_plain(frame) -> None:
    surrogate = b"\\ud83d" in frame  # the only escape that native code leaves to Python
    assert reference(frame) is not None
    assert check(frame) == (traffic.OTHER if surrogate else traffic.PLAIN)


@settings(max_examples=400)
@given(FRAMES, st.data())
def test_a_damaged_request_is_read_as_python_reads_it(frame, data) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(damaged) - 1))
        what = data.draw(st.sampled_from(["byte", "drop", "repeat", "insert"]))
        if what == "byte":
            damaged[at] = data.draw(st.integers(0, 255))
        elif what == "drop":
            del damaged[at : at + data.draw(st.integers(1, 9))]
        elif what == "repeat":
            damaged[at:at] = damaged[at : at + data.draw(st.integers(1, 40))]
        else:
            damaged[at:at] = data.draw(st.sampled_from(BITS))
        if len(damaged) < 9:
            break
    check(bytes(damaged))
    # The same with a valid header length: only then does damage after it show.
    if frame[:8] != damaged[:8] and len(damaged) > 8:
        check(frame_of(frame[4] & 1, bytes(damaged[8:]), b"b"))


BITS = [
    b'"', b"\\", b"\\u00", b"\\u0022", b"\\ud83d", b"{", b"}", b",", b":", b" ", b"\0", b"\x1f",
    b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xc0\xaf", b"1e3", b".5", b"-",
    b"null", b"[]", b'"a":"x",', b'"code":310,', b'"extFields":{},', b"99999999999999999999",
    b"NaN", b"\xef\xbb\xbf", b"\xef\xbc\x91", b"+", b'"batch":"true",',
]  # fmt: skip


@st.composite
def strange_fields(draw: st.DrawFn) -> bytes:
    """JSON requests with members that are missing, doubled, out of range or of another type."""
    members, body = draw(json_members())
    code = int(dict(members)["code"])
    good = draw(fields_of(code))
    inner = [(key, json.dumps(value)) for key, value in good.items()]
    values = st.sampled_from(STRANGE)
    for _ in range(draw(st.integers(0, 2))):
        where, pick = draw(st.sampled_from([members, inner])), draw(st.integers(0, 20))
        if where is inner and not inner:
            continue
        key = where[pick % len(where)][0]
        match draw(st.sampled_from(["drop", "double", "value"])):
            case "drop":
                del where[pick % len(where)]
            case "double":
                where.insert(draw(st.integers(0, len(where))), (key, draw(values)))
            case _:
                where[pick % len(where)] = (key, draw(values))
    object_ = draw(json_object(inner))
    members = [(key, object_ if key == "extFields" else value) for key, value in members]
    return frame_of(0, draw(json_object(members)).encode("utf-8", "surrogatepass"), body)


STRANGE = [
    '""', '"0"', '"true"', '"\\u0074rue"', '"\\u0034"', '"2147483648"', '"-2147483649"',
    '"9223372036854775808"', '"-9223372036854775808"', '"00000000000000000004"', '"4 "', '" 4"',
    '"1_0"', '"٤"', '"+"', '"-"', '"+-1"', '"4.0"', '"TRUE"', '"\u212a"', '"\\ud83d"', "null",
    "true", "4", "310", "11", "-1", "1.0", "1e1", "4294967306", "2147483648", "{}", "[]", "[[{}]]",
    '{"a":"b"}', "NaN", "01", "-0", '"JAVA"', '"KLINGON"', '"\\n\\/\\"\\b"', '"\\x"', '"\t"',
    '"\x7f"',
]  # fmt: skip


@settings(max_examples=400)
@given(strange_fields())
def test_strange_members_are_read_as_python_reads_them(frame) -> None:
    check(frame)


@given(st.sampled_from(BINARY_CODES), st.data())
def test_binary_fields_that_repeat_or_overrun(code, data) -> None:
    pieces = []
    fields = list(data.draw(fields_of(code)).items())
    for key, value in fields + data.draw(st.lists(st.sampled_from(fields), max_size=1)):
        raw = value.encode() + data.draw(st.sampled_from([b"", b"", b"", b"\xff", b"\xc3"]))
        more = data.draw(st.sampled_from([0] * 20 + [1, -1, 1 << 30, -(1 << 31)]))
        size = max(len(raw) + more, -(1 << 31))
        pieces += [len(key.encode()).to_bytes(2, "big"), key.encode()]
        pieces += [size.to_bytes(4, "big", signed=True), raw]
    inner = b"".join(pieces)
    behind = data.draw(st.sampled_from([b"", b"", b"\0", b"x" * 9]))
    fixed = code.to_bytes(2, "big") + bytes([data.draw(st.integers(0, 255))]) + bytes(14)
    header = fixed + len(inner).to_bytes(4, "big") + inner + behind
    check(frame_of(1, header, b"body"))


@given(st.binary(max_size=80), st.integers(0, 2))
def test_any_bytes_are_judged_as_python_judges_them(data, codec) -> None:
    check(data)
    check(frame_of(codec, data, b"x"))


# Properties

NAMES = st.sampled_from(
    [
        "KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TRAN_MSG", "INNER_NUM", "POP_CK", "MSG_REGION",
        "TRACE_ON", "CLUSTER", "BUYER_ID", "k", "KEYT", "UNIQ_KEZ", "INNER_MULTI_DISPATCH", "ключ",
    ]
)  # fmt: skip
VALUES = st.sampled_from(["true", "false", "TRUE", "0", "3", "a b", "x" * 30, "\x01", "é"]) | TEXT


@st.composite
def property_texts(draw: st.DrawFn) -> bytes:
    pairs = draw(st.lists(st.tuples(NAMES | TEXT, VALUES), max_size=8))
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    match draw(st.integers(0, 5)):
        case 0:
            text = text[:-1]
        case 1:
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(["\x01", "\x02", "\x02\x02"])) + text[at:]
    return text.encode()


@settings(max_examples=400)
@given(property_texts())
@example(b"")
@example(b"a\x01b\x02" * 2)
@example("".join(f"{n}\x01{n}\x02" for n in range(65)).encode())
@example(b"k\x01" + b"v" * 32766)
def test_plain_properties_are_stored_as_they_are(text) -> None:
    check_properties(text)


@given(st.dictionaries(NAMES.filter(lambda name: name not in SPECIAL_NAMES) | TEXT, VALUES))
def test_ordinary_properties_are_plain(wanted) -> None:
    wanted = {
        name: value.replace("\x02", "")
        for name, value in wanted.items()
        if name and value.strip("\x02") and not {"\x01", "\x02"} & set(name)
    }
    text = encode_properties(wanted)
    if not SPECIAL_NAMES & set(wanted) and len(wanted) <= PAIRS_MAX:
        for given_text, unended in ((text, False), (text[:-1], bool(text))):
            plain, found = traffic.scan_properties(given_text)
            assert plain and found["canonical"] and found["unended"] == unended


SPECIAL_NAMES = {
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG", "INNER_NUM",
    "POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER", "INNER_MULTI_DISPATCH",
}  # fmt: skip


def test_missing_properties_are_plain() -> None:
    plain, found = traffic.scan_properties(None)
    assert plain and found["canonical"] and found["waits"] and found["unique_key"] is None


def test_a_value_may_hold_the_separator_of_names() -> None:
    assert traffic.scan_properties(b"k\x01a\x01b\x02")[0]


# Answers

HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
OFFSETS = st.lists(INT64, min_size=1, max_size=5)


@settings(max_examples=200)
@given(
    st.sampled_from([0, 10, 11, 12]),
    INT32,
    INT32,
    INT64,
    OFFSETS,
    HOSTS,
    st.none() | TEXT,
    st.none() | TEXT,
    TEXT,
    st.booleans(),
)
def test_send_answers_are_pythons_bytes(
    code, opaque, queue_id, offset, ids, host, transaction_id, batch_id, region, trace_on
) -> None:
    texts = ",".join(encode_message_id(host, each) for each in ids)
    header = SendMessageResponse(texts, queue_id, offset, transaction_id, batch_id)
    fields = {names.MSG_REGION: region, names.TRACE_ON: "true" if trace_on else "false"}
    wanted = b"".join(
        map(bytes, encode(new_response(Command(310, opaque), code, None, header, fields=fields)))
    )
    arguments = (
        code,
        opaque,
        queue_id,
        offset,
        ids,
        host,
        _bytes(transaction_id),
        _bytes(batch_id),
        region.encode(),
        trace_on,
    )
    assert traffic.send_reply(*arguments) == wanted
    assert traffic.send_reply(*arguments, missing_room=1) == b""


@settings(max_examples=200)
@given(
    st.sampled_from([0, 19, 20, 21]),
    INT32,
    TEXT | st.just("FOUND"),
    INT64,
    INT64,
    INT64,
    INT64,
    INT32,
    INT32,
    st.integers(0, 5000),
)
def test_pull_answers_are_pythons_bytes(
    code, opaque, remark, suggested, begin, low, high, topic_flag, group_flag, body_size
) -> None:
    header = PullMessageResponse(suggested, begin, low, high)
    header.topic_sys_flag, header.group_sys_flag = topic_flag, group_flag
    response = new_response(
        Command(11, opaque), code, remark, header, [memoryview(bytes(body_size))]
    )
    wanted = b"".join(map(bytes, encode(response)))
    arguments = (
        code,
        opaque,
        remark.encode(),
        suggested,
        begin,
        low,
        high,
        topic_flag,
        group_flag,
        body_size,
    )
    assert traffic.pull_reply(*arguments) + bytes(body_size) == wanted
    assert traffic.pull_reply(*arguments, missing_room=1) == b""


def test_an_answer_that_no_frame_holds_is_refused() -> None:
    head = len(traffic.pull_reply(0, 1, b"FOUND", 0, 1, 0, 1, 0, 0, 0))
    largest = FRAME_MAX - head
    assert traffic.pull_reply(0, 1, b"FOUND", 0, 1, 0, 1, 0, 0, largest)
    assert traffic.pull_reply(0, 1, b"FOUND", 0, 1, 0, 1, 0, 0, largest + 1) == b""
    ids = [0] * (FRAME_MAX // 33 + 1)
    assert traffic.send_reply(0, 1, 0, 0, ids, bytes(8), None, None, b"R", True) == b""


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()

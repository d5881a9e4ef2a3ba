"""Model of traffic requests: net.wire and the handlers read the same from requests and properties
as pyx.traffic."""

from typing import Any

from turbopump.broker.traffic.put_message import delay_level
from turbopump.broker.traffic.timer_requests import TIMER_PROPERTIES, is_timer
from turbopump.net.wire import properties as names
from turbopump.net.wire.command import LANGUAGES, Command, WireError, decode
from turbopump.net.wire.header import BadHeader, Member, members_of, read_bool, read_header
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, SendMessageRequestV2, read_send
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx import traffic

PAIRS_MAX, PROPERTIES_MAX = 64, (1 << 15) - 1  # of properties that are looked at
CLASSES: dict[int, type[Any]] = {
    10: SendMessageRequest,
    310: SendMessageRequestV2,
    320: SendMessageRequestV2,
    11: PullMessageRequest,
    37: EndTransactionRequest,
    200050: PopMessageRequest,
    200051: AckMessageRequest,
}
SENDS = {10, 310, 320}
UNREAD = {"broker_name", "proxy_froward_client_id"}  # members that no handler reads


def reference(frame: bytes) -> dict[str, Any] | None:
    """The members of a request that is served, None for any other; raises WireError."""
    command = decode(frame)
    if command.code not in traffic.CODES or command.is_response or not serves(command):
        return None
    try:
        header = _header(command)
    except BadHeader:
        return None
    return {
        "code": command.code,
        "opaque": command.opaque,
        "flag": command.flag,
        "version": command.version,
        "codec": int(command.codec),
        "language": command.language,
        "is_oneway": command.is_oneway,
        "body": command.body,
        "header": header,
    }


def serves(command: Command) -> bool:
    """A send without a body is refused, which is nothing for the hot path."""
    return command.code not in SENDS or len(command.body) > 0


def read_members(code: int) -> list[Member]:
    """Members of a request's header that C reads."""
    return [one for one in members_of(CLASSES[code]) if one[0] not in UNREAD]


def _header(command: Command) -> dict[str, Any]:
    if command.code in SENDS:
        header = read_send(command.code, command.fields)
    else:
        header = read_header(CLASSES[command.code], command.fields)
    found = {}
    for name, _, read, _ in read_members(command.code):
        value = getattr(header, name)
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        found[name] = bool(value) if read is read_bool else value
    return found


def check(frame: bytes) -> int:
    """The verdict on a frame; PLAIN only with the members of `reference`, BAD only for no frame.

    Asserts that a scratch without room changes no member.
    """
    verdict, members = traffic.decode(frame)
    try:
        wanted = reference(frame)
    except WireError:
        assert verdict != traffic.PLAIN, f"{members} of a text that is no command"
        return verdict
    assert verdict != traffic.BAD, f"{wanted} is no frame"
    if verdict == traffic.PLAIN:
        members["language"] = LANGUAGES[members["language"]]
        assert members == wanted
        again, few = traffic.decode(frame, 0)
        assert again == traffic.OTHER or few | {"language": members["language"]} == wanted
    return verdict


def check_properties(text: bytes) -> bool:
    """Whether a send's properties (UTF-8) are plain; asserts that the handlers would store them
    unchanged and find the same values."""
    plain, found = traffic.scan_properties(text)
    decoded = decode_properties(text)
    canonical = encode_properties(decoded) == text + b"\x02" * found["unended"]
    if not found["canonical"]:
        assert not plain
        assert not canonical or len(decoded) > PAIRS_MAX or len(text) > PROPERTIES_MAX
        return False
    assert canonical
    special = is_timer(decoded) or delay_level(decoded) != 0 or names.INNER_NUM in decoded
    special |= decoded.get(names.TRAN_MSG, "").lower() == "true" or names.POP_CK in decoded
    special |= names.INNER_MULTI_DISPATCH in decoded
    own = {names.MSG_REGION, names.TRACE_ON, names.CLUSTER} & set(decoded)
    assert not (plain and (special or own))
    assert plain == (found["names"] & sum(traffic.SPECIAL.values()) == 0)
    for name, key in (("UNIQ_KEY", "unique_key"), ("KEYS", "keys"), ("TAGS", "tags")):
        value = found[key]
        assert (None if value is None else value.decode()) == decoded.get(name)
    for name, key in (
        (names.REAL_TOPIC, "real_topic"),
        (names.REAL_QID, "real_queue"),
        (names.PGROUP, "producer_group"),
    ):
        value = found[key]
        assert (None if value is None else value.decode()) == decoded.get(name)
    timer = next((decoded[name] for name in TIMER_PROPERTIES if name in decoded), None)
    assert (None if found["timer"] is None else found["timer"].decode()) == timer
    half = names.TRAN_MSG in decoded and decoded[names.TRAN_MSG].lower() == "true"
    assert bool(found["is_half"]) == half
    assert found["waits"] == (decoded.get(names.WAIT, "true").lower() == "true")
    return plain

"""What net.wire reads from the traffic requests, in the shape of pyx.traffic."""

import dataclasses
from typing import Any

from turbopump.net.wire.command import LANGUAGES, Command, WireError, decode
from turbopump.net.wire.header import BadHeader, read_header
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import read_send
from turbopump.pyx import traffic

PULL = 11
IGNORED = {"broker_name", "proxy_froward_client_id"}  # members that no handler reads


def reference(frame: bytes) -> dict[str, Any] | None:
    """The members of a request that is served, None for any other; raises WireError."""
    command = decode(frame)
    if command.code not in traffic.CODES or command.is_response or not serves(command):
        return None
    try:
        members = _pull(command) if command.code == PULL else _send(command)
    except BadHeader:
        return None
    return {
        "code": command.code, "opaque": command.opaque, "flag": command.flag,
        "version": command.version, "codec": int(command.codec), "language": command.language,
        "is_oneway": command.is_oneway, "body": command.body,
    } | members  # fmt: skip


def serves(command: Command) -> bool:
    """A send without a body is refused, which is nothing for the hot path."""
    return command.code == PULL or len(command.body) > 0


def _send(command: Command) -> dict[str, Any]:
    header = read_send(command.code, command.fields)
    members = _bytes_of(header)
    members["message_flag"] = members.pop("flag")
    members["reconsume_times"] = header.reconsume_times or 0
    members["unit_mode"], members["batch"] = bool(header.unit_mode), bool(header.batch)
    return members


def _pull(command: Command) -> dict[str, Any]:
    return _bytes_of(read_header(PullMessageRequest, command.fields))


def _bytes_of(header: Any) -> dict[str, Any]:
    members = dataclasses.asdict(header)
    return {
        name: value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        for name, value in members.items()
        if name not in IGNORED
    }


def check(frame: bytes) -> int:
    """The verdict on a frame; PLAIN only with the members of the reference, BAD only for no frame.

    Asserts that a scratch without room changes no member.
    """
    verdict, members = traffic.decode(frame)
    try:
        wanted = reference(frame)
    except WireError:
        assert verdict != traffic.PLAIN, f"{members} of what is no command"
        return verdict
    assert verdict != traffic.BAD, f"{wanted} is no frame"
    if verdict == traffic.PLAIN:
        members["language"] = LANGUAGES[members["language"]]
        assert members == wanted
        again, few = traffic.decode(frame, 0)
        assert again == traffic.OTHER or few | {"language": members["language"]} == wanted
    return verdict

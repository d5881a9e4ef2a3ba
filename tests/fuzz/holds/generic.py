"""Requests that any code may be sent: as large as a frame, a header or a small body can be."""

from functools import lru_cache

from tests.fuzz.holds.meter import Case
from turbopump.net.wire.bodies import SMALL_MAX
from turbopump.net.wire.command import FRAME_MAX

_ROOM = FRAME_MAX - (8 << 10)
_LIST = b"{}," * ((_ROOM - 10) // 3)


def generic(fields: dict[str, str]) -> list[Case]:
    """Requests with the fields that the headers of these codes need: bodies as large as a frame
    takes, just small bodies, and headers as large as permitted.
    """
    many = {f"k{number}": "v" * 20 for number in range(3_000)}
    # Of 128 KiB; each of these characters is written as an escape of six.
    long = {key: value + "\x02" * (110_000 // 6 // len(fields)) for key, value in fields.items()}
    return [
        Case("no field", {}),
        Case("no body", fields),
        *(Case(name, fields, body) for name, body in _bodies().items()),
        Case("many fields", many | fields),
        Case("long fields", long),
    ]


@lru_cache(maxsize=1)
def _bodies() -> dict[str, bytes]:
    members = b",".join(b'"%06d":1' % number for number in range(6_000))
    return {
        "objects, 16 MiB": b"[" + _LIST + b"{}]",
        "a member of objects, 16 MiB": b'{"a":[' + _LIST + b"{}]}",
        "brackets, 16 MiB": b"[" * _ROOM,
        "a text, 16 MiB": b'{"a":"' + b"x" * (_ROOM - 10) + b'"}',
        "escapes, 16 MiB": b'"' + b"\\u0041" * (_ROOM // 6 - 1) + b'"',
        "lines, 16 MiB": b"a=b\n" * (_ROOM // 4),
        "zeros, 16 MiB": bytes(_ROOM),
        "objects, just small": b"[" + _LIST[: SMALL_MAX // 3 * 3 - 9] + b"{}]",
        "members, just small": (b"{" + members)[: SMALL_MAX // 11 * 10] + b'"a":1}',
        "lines, just small": b"a=b\n" * (SMALL_MAX // 4),
    }

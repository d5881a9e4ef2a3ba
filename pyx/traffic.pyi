"""Native decoding of requests and encoding of answers, for tests and benchmarks."""

from typing import Any, Final

PLAIN: Final[int]
"""Verdict: the request was understood whole, and may be served natively."""
OTHER: Final[int]
"""Verdict: a request or response for the Python handler."""
BAD: Final[int]
"""Verdict: no frame; the connection is to be closed."""
CODES: Final[tuple[int, ...]]
"""Request codes that may be PLAIN."""
SPECIAL: Final[dict[str, int]]
"""Kind of property that makes a send not plain, to its bit in "names" of `scan_properties`."""

def decode(frame: bytes, scratch_size: int = -1) -> tuple[int, dict[str, Any]]:
    """Decode one whole frame, its length bytes included: (verdict, members by name); members only
    if PLAIN, texts as bytes or None.

    "header" has the members of the header's class. `scratch_size` is the room for unescaped texts
    in bytes, by default the frame's size."""

def decode_repeatedly(frame: bytes, rounds: int) -> int:
    """Decode a frame `rounds` times without Python in between, and return the number of PLAIN
    verdicts; for benchmarks."""

def match(
    learned: bytes, frame: bytes
) -> tuple[bool, tuple[dict[str, Any], dict[str, Any]] | None]:
    """Learn the header of a frame as a template, then match another: (whether it was learned,
    members of `decode` and of `scan_properties`, or None without a match)."""

def match_repeatedly(frame: bytes, rounds: int) -> int:
    """Learn the header of a frame, match the same frame `rounds` times without Python in between,
    and return the number of matches; for benchmarks."""

def scan_properties(text: bytes | None) -> tuple[bool, dict[str, Any]]:
    """Scan a send's properties text (None: missing); returns (whether a message with it is stored
    as a plain message, members of struct trf_properties by name)."""

def scan_repeatedly(text: bytes, rounds: int) -> int:
    """Scan properties `rounds` times, and return the number of plain verdicts; for benchmarks."""

def send_reply(
    code: int,
    opaque: int,
    queue_id: int,
    queue_offset: int,
    log_offsets: list[int],
    store_host: bytes,
    transaction_id: bytes | None,
    batch_id: bytes | None,
    region: bytes,
    trace_on: bool,
    missing_room: int = 0,
    rounds: int = 1,
    recall_handle: bytes | None = None,
) -> bytes:
    """Return the frame of a send's answer, b"" if the writer refused for lack of room.

    `missing_room` is subtracted from the room that the writer asks for; `rounds` is the number of
    repetitions, for a benchmark."""

def pull_reply(
    code: int,
    opaque: int,
    remark: bytes,
    suggest_which_broker_id: int,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    topic_sys_flag: int,
    group_sys_flag: int,
    body_size: int,
    missing_room: int = 0,
) -> bytes:
    """Return the frame of a pull's answer up to its body, b"" if the writer refused for lack of
    room."""

from typing import Any, Final

PLAIN: Final[int]
OTHER: Final[int]
BAD: Final[int]
CODES: Final[tuple[int, ...]]
LANGUAGES: Final[int]
FRAME_MAX: Final[int]
VERSION: Final[int]
SPECIAL: Final[dict[str, int]]

def decode(frame: bytes, scratch_size: int = -1) -> tuple[int, dict[str, Any]]:
    """(verdict, members) of one whole frame; members only if PLAIN, texts as bytes or None.

    `scratch_size` is the room for unescaped texts, by default as much as the frame has bytes."""

def decode_repeatedly(frame: bytes, rounds: int) -> int:
    """How often a frame is PLAIN of so many times, without anything of Python between them."""

def scan_properties(text: bytes | None) -> tuple[bool, dict[str, Any]]:
    """(whether plain, what was found) of a send's properties; None as they are when missing."""

def scan_repeatedly(text: bytes, rounds: int) -> int:
    """How often properties are plain of so many times."""

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
    """The frame of a send's answer, b"" if it was refused. `missing_room` is withheld from the room
    it asks for; `rounds` is how often it is made, for a benchmark."""

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
    """The frame of a pull's answer up to its body, b"" if it was refused."""

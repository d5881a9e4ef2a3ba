CLOSED: int
COMMA: int
LARGE: int
ENDS: int

def next_piece(text: bytes, at: int, room: int) -> tuple[int, int, int, int]:
    """The next piece of a container's members, `at` the first byte behind its bracket or behind a
    comma: (kind, end, containers opened, commas), at most `room` bytes of whole members.

    CLOSED: the container ends, `end` is at its bracket; COMMA: whole members up to `end`, at a
    comma; LARGE: the first member is larger, `end` is where the container in it begins; ENDS: the
    text ends before the container does.
    """

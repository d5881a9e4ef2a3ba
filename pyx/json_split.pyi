"""Positions at which a long JSON text can be cut into pieces."""

CLOSED: int
"""Kind: the container ends in the piece."""
COMMA: int
"""Kind: the piece is whole members, before a comma."""
LARGE: int
"""Kind: the first member is larger than a piece."""
ENDS: int
"""Kind: the text ends before the container does."""

def next_piece(text: bytes, at: int, room: int) -> tuple[int, int, int, int]:
    """Find the next piece of a container's members: (kind, position of its end, number of
    containers opened in it, number of commas in it), at most `room` bytes of whole members. `at` is
    the first byte after the container's opening bracket or after a comma.

    CLOSED: the container ends, `end` is at its closing bracket. COMMA: whole members up to the
    comma at `end`. LARGE: the first member has more than `room` bytes, and `end` is the beginning
    of the container in it. ENDS: the text ends before the container does.
    """

def find_frames(
    data: bytes | bytearray | memoryview, length: int, max_frame: int
) -> tuple[list[tuple[int, int]], int, int]:
    """Find the frames in data[:length): ([(position, size incl. the 4 length bytes)], consumed,
    needed). `needed` is the size of the incomplete frame that follows, 0 if unknown yet.
    Raises ValueError for a length that is negative, below 4, or a frame above max_frame."""

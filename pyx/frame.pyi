"""Frames of the remoting protocol in received bytes."""

def find_frames(
    data: bytes | bytearray | memoryview, length: int, max_frame: int
) -> tuple[list[tuple[int, int]], int, int]:
    """Find the whole frames in data[:length): ([(position of the frame, its size with the 4 length
    bytes)] in their order, number of bytes that these frames have, needed). `needed` is the size of
    the incomplete frame that follows, its length bytes included, 0 if unknown yet or if no bytes
    follow. Raises ValueError for a length that is negative, below 4, or a frame above max_frame."""

"""Memory of the exact size for kernels, in which the sanitizers see a byte too far."""

import ctypes

from turbopump.pyx.region import Region


def exact(size: int, content: bytes = b"") -> Region:
    """A region of malloc'd memory, which ends with its last byte (above 16 bytes)."""
    array = (ctypes.c_uint8 * size)()
    ctypes.memmove(array, content, len(content))
    return Region(array)

"""The log's end as the engine and the native path share it."""

import pytest

from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail


def test_an_open_file_stays_in_memory_until_another_one_is_opened() -> None:
    memory = bytearray(64)
    tail = Tail()
    region = Region(memory)
    tail.open(4096, region)
    region.release()
    assert tail.base == 4096
    with pytest.raises(BufferError):
        memory.clear()
    tail.open(0, None)
    memory.clear()


def test_a_read_only_file_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        Tail().open(0, Region(b"read only"))

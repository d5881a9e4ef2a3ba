from collections.abc import Sequence

from turbopump.engine.types import Buffer

OPAQUE_BASE: int

_Row = tuple[int, int, int, int, int, int, int, int]

class Histogram:
    """Latencies in nanoseconds, 3 significant digits (csrc/load_hist.h)."""

    def record(self, value: int) -> None: ...
    def at(self, share: float) -> int:
        """What `share` (0 to 1) of the recorded values do not exceed; 0 if there are none."""

    @property
    def total(self) -> int: ...
    @property
    def max(self) -> int: ...
    def counts(self) -> list[tuple[int, int]]:
        """(largest value it holds, count) of each count that is not zero."""

def put(
    texts: bytes,
    template: _Row,
    body: bytes,
    *,
    slot: int = 0,
    epoch_ms: int = 0,
    serial: int = 0,
    queue_offset: int = 0,
    batch: tuple[int, int, int] = (1, 0, 0),
) -> bytes:
    """One request as the generator writes it: a pull if the template has a queue offset."""

def put_replay(
    texts: bytes,
    template: _Row,
    data: Buffer,
    starts: Buffer,
    ends: Buffer,
    *,
    element: bytes = b"",
    unique_at: int = 0,
    per_send: int = 1,
    serial: int = 0,
    count: int = 1,
) -> list[bytes]:
    """`count` requests of a corpus as the generator writes them, behind each other."""

def read(frame: bytes, names: Sequence[str] = ()) -> tuple[int, int, bytes, dict[str, int]] | None:
    """(code, opaque, remark, numbers of the named extFields) of an answer; None if it is none."""

def count_records(body: bytes, check_crc: bool = False) -> tuple[int, int]:
    """(records, born timestamp of the last one in ms); -1 records: it is no sequence of them."""

from collections.abc import Sequence

from turbopump.engine.types import Buffer

OPAQUE_BASE: int

_Row = tuple[int, int, int, int, int, int, int, int]

class Histogram:
    """Latencies in nanoseconds, 3 significant digits (csrc/load_hist.h)."""

    def record(self, value: int) -> None: ...
    def at(self, share: float) -> int:
        """Return the value that `share` (0 to 1) of the recorded values do not exceed; 0 without
        values."""

    @property
    def total(self) -> int: ...
    @property
    def max(self) -> int: ...
    def counts(self) -> list[tuple[int, int]]:
        """Return (largest value of the bucket, count) of each bucket that is not empty."""

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
    """Return one request as the generator writes it: a pull if the template has a queue offset."""

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
    """Return `count` consecutive requests of a corpus as the generator writes them."""

def read(frame: bytes, names: Sequence[str] = ()) -> tuple[int, int, bytes, dict[str, int]] | None:
    """Parse an answer: (code, opaque, remark, numbers of the named extFields); None for other
    bytes."""

def count_records(body: bytes, check_crc: bool = False) -> tuple[int, int]:
    """Count the records of a body: (records, born timestamp of the last record in ms); -1 records:
    the body is no sequence of records."""

"""Parts of the load generator for tests and its report: histogram, frames, answers."""

from collections.abc import Sequence

from turbopump.engine.types import Buffer

OPAQUE_BASE: int
"""Opaque of window slot 0; slot n has OPAQUE_BASE + n, always ten digits."""

_Row = tuple[int, int, int, int, int, int, int, int]

class Histogram:
    """Latencies in nanoseconds, 3 significant digits (csrc/load_hist.h)."""

    def record(self, value: int) -> None:
        """Count one latency of `value` ns."""

    def at(self, share: float) -> int:
        """Return the value in ns that `share` (0 to 1) of the recorded values do not exceed, to a
        thousandth; 0 without values."""

    @property
    def total(self) -> int:
        """Number of recorded values."""

    @property
    def max(self) -> int:
        """Greatest recorded value in ns, exact; 0 without values."""

    def counts(self) -> list[tuple[int, int]]:
        """Return (largest value of the bucket in ns, count) of each bucket that is not empty,
        ascending."""

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
    """Return the frame of a request as the generator writes it: a pull from `queue_offset` if the
    template has a place for it, else a send of `body` born at `epoch_ms` with UNIQ_KEYs from
    `serial` on. `template` is as for Load, `batch` as (count, unique_at, stride) of
    Load.set_batch."""

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
    """Return the frames of `count` consecutive requests of a corpus as the generator writes them;
    the arguments are as for Load and Load.set_corpus."""

def read(frame: bytes, names: Sequence[str] = ()) -> tuple[int, int, bytes, dict[str, int]] | None:
    """Parse the whole frame of an answer: (code, opaque, remark as it stands in the header, cut at
    200 bytes, name to number of the extFields in `names` that are present); None for other
    bytes."""

def count_records(body: bytes, check_crc: bool = False) -> tuple[int, int]:
    """Count the records of a pull's body: (number of records, born time of the last one in epoch
    ms, 0 without records). -1: the body is no sequence of records, or with `check_crc` a body fails
    its CRC."""

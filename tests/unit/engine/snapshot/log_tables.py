"""A store of about three files, and helpers that read it as a table."""

from pathlib import Path
from typing import Any

from tests.columns_model import rows

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.snapshot.log_table import (
    LogRange,
    LogTable,
    ScanQuery,
    decode,
)
from turbopump.engine.store import Store
from turbopump.pyx.region import Region

NOW_MS = 1_700_000_000_000
FILE_SIZE = 16 * 1024
COUNT = 100
STORE_TIME_AT = 56  # of a record from an IPv4 host
Row = dict[str, Any]


class Bytes:
    """A file that is read in steps, and counts its reads."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data, self.size, self.step = data, len(data), step
        self.read = 0

    def region(self, start: int, end: int) -> Region:
        self.read += end - start
        return Region(self.data[start:end])

    def close(self) -> None:
        pass


class Steps:
    """Files as in an object store: without mappings, and a read transfers only its bytes."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._files = RealFiles()
        self.opened: list[Bytes] = []

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        return self._files.list_files(folder)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def open(self, path: str) -> Bytes:
        self.opened.append(Bytes(self._files.read(path), self._step))
        return self.opened[-1]


def rows_of(parts: list[LogRange], query: ScanQuery | None = None, **how: Any) -> list[Row]:
    query = query or ScanQuery()
    found = []
    for part in parts:
        for batch in decode(part, query, **how):
            found += [
                dict(zip(query.columns, row, strict=True)) for row in rows(batch, query.columns)
            ]
    return found


def bodies(found: list[Row]) -> list[bytes]:
    return [row["body"] for row in found]


def number_of(found: list[Row]) -> list[int]:
    return [int(body[:4]) for body in bodies(found)]


def fill(store: Store, put: Any, numbers: range) -> None:
    for number in numbers:
        put(
            store,
            topic=f"T{number % 3}",
            queue_id=number % 2,
            KEYS=f"k{number}",
            body=b"%04d" % number + bytes(number * 37 % 900),
            now_ms=NOW_MS + number * 60_000,
        )


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * FILE_SIZE:020d}"


def offsets_of(stores: Any) -> list[int]:
    table = LogTable.open(str(stores.root))
    return [row["log_offset"] for row in rows_of(table.split_ranges(confirmed=False))]


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def snapshot(root: Path) -> dict[str, Any]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }

"""Lines of text in a bounded sequence of files, of which the newest are kept, for reports.

Owns the files' names and number. It must never know a line's content, nor sync: a power cut may
lose lines. Runs on a disk thread, for one caller at a time.
"""

from collections.abc import Iterable
from typing import Final

from turbopump.engine.disk.files import Files

FILES: Final = 8
"""Maximum number of files; the oldest file is removed when the next one begins."""


class RotatingJsonl:
    """The files `folder/name-00000001.jsonl` and following; the folder is made when the first lines
    are appended."""

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self._files = files
        self._folder = folder
        self._name = name
        self._size = -1
        self._numbers: list[int] = []

    def append(self, lines: Iterable[bytes], size_max: int) -> None:
        """Append lines, each with its line break, not durably. A line that would make the file
        larger than `size_max` // FILES bytes begins the next file, and the oldest file beyond FILES
        is removed. Waits for the disk. Raises OSError; some of the lines may be written then."""
        if self._size < 0:
            self._find_files()
        for line in lines:
            full = self._size > 0 and self._size + len(line) > size_max // FILES
            if not self._numbers or full:
                self._numbers.append(self._numbers[-1] + 1 if self._numbers else 1)
                self._size = 0
            while len(self._numbers) > FILES:
                self._files.remove(self._path(self._numbers[0]))
                del self._numbers[0]
            self._files.write(self._path(self._numbers[-1]), line, self._size)
            self._size += len(line)

    def _find_files(self) -> None:
        """Create the folder, and read the numbers of its files and the size of the last file."""
        self._files.make_folders(self._folder)
        names = self._files.list_folder(self._folder)
        ends = [name.removeprefix(f"{self._name}-").removesuffix(".jsonl") for name in names]
        self._numbers = sorted(int(end) for end in ends if len(end) == 8 and end.isdecimal())
        last = self._path(self._numbers[-1]) if self._numbers else ""
        self._size = self._files.file_size(last) if last else 0

    def _path(self, number: int) -> str:
        """Path of the file with a number."""
        return f"{self._folder}/{self._name}-{number:08}.jsonl"

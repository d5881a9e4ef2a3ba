"""The newest epoch lists of a store, one per line, so that a change of the list costs one sync.

Owns the form of that file, which lies beside the epoch file (epoch_file.py), and the rule which of
its lines count. It must never touch a file, nor decide which epochs a list should have.

    <CRC-32 of the rest of the line, without the sign bit> <number> <epoch>-<start> ...\\n

A line is the whole list. Each change takes the next number, even if it fails. A new line is written
after the earlier lines, or over them from the file's beginning once the epoch file has their lists.
So reading stops before the first line that a crash cut short, or that is left from an earlier
round, whose number does not ascend; no acknowledged change follows it.

Tests: tests/unit/engine/log/test_epoch_file.py
"""

import re

from turbopump.engine.log.epochs import ENTRY, Epochs, EpochsDamaged, decode
from turbopump.pyx.crc32 import masked_crc32

SUFFIX = ".changes"
"""Suffix after the epoch file's name."""
CURRENT = b"current"
"""Line in a second copy that is as new as the first."""
NUMBERED = re.compile(rb"number ([0-9]{1,18})")
"""Line in the second copy of the epoch file: the number of the list that both copies have."""
_LINE = re.compile(rb"([0-9]{1,10}) ([0-9]{1,18})((?: [0-9]{1,10}-[0-9]{1,19})*)")


def encode(number: int, epochs: Epochs) -> bytes:
    """The line of a list with its line end; `number` must be above the number of the line before
    it."""
    body = b"%d" % number + b"".join(b" %d-%d" % (one.epoch, one.start) for one in epochs)
    return b"%d %b\n" % (masked_crc32(body), body)


def read_newest_line(text: bytes) -> tuple[int, Epochs, int] | None:
    """Read the content of the lines file: (number, list, byte after the line) of the last line that
    counts; None if no line counts."""
    found: tuple[int, Epochs, int] | None = None
    position = 0
    while (end := text.find(b"\n", position)) >= 0:
        line = text[position:end]
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) != masked_crc32(line[len(match[1]) + 1 :]):
            break
        number, position = int(match[2]), end + 1
        if found is not None and number <= found[0]:
            break
        pairs = [ENTRY.fullmatch(one) for one in match[3].split()]
        try:
            epochs = Epochs.from_pairs(
                (int(one[1]), int(one[2])) for one in pairs if one is not None
            )
        except EpochsDamaged:
            break
        found = number, epochs, position
    return found


def number_of(others: list[bytes]) -> int | None:
    """The number of the list in the second copy; `others` are the copy's lines that are not entries
    (epochs.decode). None without a line CURRENT, or without a number (RocketMQ or an older version
    wrote the copy)."""
    found = [match for line in others if (match := NUMBERED.fullmatch(line))]
    return int(found[0][1]) if found and CURRENT in others else None


def newest_valid(
    backup: bytes | None, main: bytes | None, lines: bytes | None, *, is_marked: bool
) -> tuple[Epochs | None, list[str]]:
    """Find the newest valid list of a store that may be in use.

    The arguments are the contents of X.bak, X and X.changes (epoch_file.py), None for a missing
    file. They must be read in this order, because the second copy never has a number whose list the
    first copy lacks. `is_marked`: the copies existed once (MARK_FILE). Returns (the list, None if
    no file has a valid list; a text for each damaged copy, second copy first).
    """
    is_first = backup is None and main is None and not is_marked
    number: int | None = 0 if is_first else None
    found: list[Epochs] = []
    faults: list[str] = []
    for text in (backup, main):
        try:
            epochs, others = decode(text) if text is not None else (None, [])
        except EpochsDamaged as error:
            faults.append(str(error))
            continue
        if text is backup:
            number = number_of(others) if epochs is not None else number
        if epochs is not None and (text is main or CURRENT in others):
            found.append(epochs)
    last = read_newest_line(lines or b"")
    if last is not None and number is not None and last[0] > number:
        found.append(last[1])
    return (found[-1] if found else None), faults

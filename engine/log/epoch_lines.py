"""The newest epoch lists of a store, a line each: what makes a change of the list cost one sync.

Owns the form of that file, which lies beside the epoch list's (epoch_file.py), and which of its
lines count. It must never touch a file, nor decide what a list should say. Called by `epoch_file`
and by the readers of stores that another process owns.

    <CRC-32 of the rest of the line, without the sign bit> <number> <epoch>-<start> ...\\n

A line is the whole list. Numbers ascend by one a change, also by one that failed. A new line is
written behind those before it, or over them from the file's beginning on, once the epoch file has
them. So what is read ends before the first line that is not whole, as a crash leaves it, or whose
number does not ascend, as it is left of a former round; nothing that was acknowledged is behind it.
"""

import re

from turbopump.engine.log.epochs import ENTRY, Epochs, EpochsDamaged, decode
from turbopump.pyx.crc32 import masked_crc32

SUFFIX = ".changes"
"""Behind the epoch file's name."""
CURRENT = b"current"
"""A line of a second copy that is as new as the first."""
NUMBERED = re.compile(rb"number ([0-9]{1,18})")
"""In the second copy of the epoch file: the number of the list that both copies have."""
_LINE = re.compile(rb"([0-9]{1,10}) ([0-9]{1,18})((?: [0-9]{1,10}-[0-9]{1,19})*)")


def encode(number: int, epochs: Epochs) -> bytes:
    """One line."""
    body = b"%d" % number + b"".join(b" %d-%d" % (one.epoch, one.start) for one in epochs)
    return b"%d %b\n" % (masked_crc32(body), body)


def newest(text: bytes) -> tuple[int, Epochs, int] | None:
    """(number, list, position behind it) of the last line that counts; None if none does."""
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
            epochs = Epochs.of((int(one[1]), int(one[2])) for one in pairs if one is not None)
        except EpochsDamaged:
            break
        found = number, epochs, position
    return found


def number_of(others: list[bytes]) -> int | None:
    """The number that a second copy of the epoch file has among its other lines; None if it is not
    current, or of before there were numbers."""
    found = [match for line in others if (match := NUMBERED.fullmatch(line))]
    return int(found[0][1]) if found and CURRENT in others else None


def told(
    backup: bytes | None, main: bytes | None, lines: bytes | None, *, is_marked: bool
) -> tuple[Epochs | None, list[str]]:
    """(the newest list that is to be believed, what is wrong with the copies) of a store that may
    be in use: read in this order, for the second copy never has a number whose list is not in the
    other one. None for a file that is not there; `is_marked`: there were copies once (MARK_FILE).
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
    last = newest(lines or b"")
    if last is not None and number is not None and last[0] > number:
        found.append(last[1])
    return (found[-1] if found else None), faults

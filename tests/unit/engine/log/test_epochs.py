"""The epoch list: its text, its corrections, and the point where two logs diverge."""

from pathlib import Path

import pytest

from turbopump.engine.log.epochs import (
    ENTRIES_MAX,
    LOG_OFFSET_MAX,
    EpochEntry,
    Epochs,
    EpochsDamaged,
    consistent_point,
    decode,
)
from turbopump.engine.types import Epoch, LogOffset

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "ha"
THREE = {1: 100, 2: 300, 3: 500}


def epochs(pairs: dict[int, int]) -> Epochs:
    return Epochs.from_pairs(pairs.items())


def found(own: dict[int, int], own_end: int, other: dict[int, int], other_end: int) -> int | None:
    return consistent_point(epochs(own), LogOffset(own_end), epochs(other), LogOffset(other_end))


# --- the text


@pytest.mark.parametrize(
    ("pairs", "checksum"),
    [
        ({7: 7000, 8: 8000}, 773307083),
        (THREE, 453994644),
        ({1: 0, 2: 1580}, 1302340025),
        ({1: 0}, 1725254278),
        ({}, 0),
    ],
)
def test_text_of_a_list(pairs: dict[int, int], checksum: int) -> None:
    text = epochs(pairs).encode()
    assert text.split(b"\n")[:2] == [str(len(pairs)).encode(), str(checksum).encode()]
    assert decode(text) == (epochs(pairs), [])


def golden_files() -> list[Path]:
    return sorted(path for path in GOLDEN.glob("*/epochs/*/*") if path.is_file())


def test_every_file_of_a_real_pair_is_read_and_written_byte_for_byte() -> None:
    files = golden_files()
    assert len(files) == 40
    for path in files:
        text = path.read_bytes()
        read, others = decode(text)
        assert read.encode() == text and others == [], path
    last = decode((GOLDEN / "controller-json/epochs/6-end/a").read_bytes())[0]
    assert last == epochs({1: 0, 2: 407727, 3: 602849})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1\n",
        b"1\n1725254278",
        b"1\n1725254278\n",
        b"2\n1725254278\n1-0\n",
        b"1\n1725254279\n1-0\n",
        b"1\n1725254278\n1-1\n",
        b"1\n1725254278\n1-0",
        b"x\n0\n1-0\n",
        b"1\n-5\n1-0\n",
        b"1\n0\n1-x\n",
        b"1\n0\n-1-0\n",
        b"2\n0\n2-0\n1-5\n",
        b"2\n0\n1-5\n1-9\n",
        b"2\n0\n1-5\n2-4\n",
        b"1\n0\n2147483648-0\n",
        b"1\n0\n1-9223372036854775808\n",
        b"\0" * 40,
    ],
)
def test_damaged_text_is_refused(text: bytes) -> None:
    with pytest.raises(EpochsDamaged):
        decode(text)


def test_records_rocketmq_passes_over_are_passed_over() -> None:
    assert decode(b"1\n0\n1-0\nhello\n") == (epochs({1: 0}), [b"hello"])
    assert decode(b"2\n0\n1-0\n3-0\n")[0] == epochs({1: 0, 3: 0})


def test_the_greatest_numbers_of_java_are_read() -> None:
    text = b"1\n0\n2147483647-9223372036854775807\n"
    assert decode(text)[0] == epochs({2**31 - 1: 2**63 - 1})


# --- changes


def test_entries_and_their_ends() -> None:
    three = epochs(THREE)
    assert three.get(2) == EpochEntry(Epoch(2), LogOffset(300))
    assert three.get(4) is None
    assert [three.end_of(number) for number in range(3)] == [300, 500, LOG_OFFSET_MAX]
    assert [three.index_at(LogOffset(o)) for o in (99, 100, 299, 300, 350, 500, 10**9)] == [
        None,
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert (three.last_epoch, Epochs().last_epoch) == (3, -1)


def test_an_epoch_without_writes_is_kept() -> None:
    grown = epochs({1: 0}).with_epoch(2, 0).with_epoch(3, 0).with_epoch(5, 700)
    assert grown == epochs({1: 0, 2: 0, 3: 0, 5: 700})
    assert grown.index_at(LogOffset(0)) == 2  # the epoch that owns the byte


def test_a_new_epoch_takes_the_place_of_those_behind_it() -> None:
    assert epochs(THREE).with_epoch(4, 400) == epochs({1: 100, 2: 300, 4: 400})
    assert epochs(THREE).with_epoch(4, 500) == epochs({**THREE, 4: 500})


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_an_old_epoch_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match="not newer"):
        epochs(THREE).with_epoch(epoch, 900)


def test_the_list_is_bounded() -> None:
    grown = Epochs.from_pairs((number, number) for number in range(ENTRIES_MAX + 5))
    assert len(grown) == ENTRIES_MAX and grown.entries[0].epoch == 5
    assert len(grown.with_epoch(ENTRIES_MAX + 9, ENTRIES_MAX + 9)) == ENTRIES_MAX


def test_cutting_the_end() -> None:
    assert epochs(THREE).cut_at(LogOffset(150)) == epochs({1: 100})
    assert epochs(THREE).cut_at(LogOffset(300)) == epochs({1: 100})
    assert epochs(THREE).limited_to(LogOffset(300)) == epochs({1: 100, 2: 300})
    assert epochs(THREE).limited_to(LogOffset(299)) == epochs({1: 100})


def test_retention_takes_entries_that_ended_before_it() -> None:
    two = epochs({1: 0, 2: 1580})
    assert two.without_expired(LogOffset(1570)) == two
    assert two.without_expired(LogOffset(1580)) == two  # a replica may stand there
    assert two.without_expired(LogOffset(1581)) == epochs({2: 1580})
    assert two.without_expired(LogOffset(9999)) == epochs({2: 1580})


def test_epochs_a_handshake_adopts() -> None:
    own, master = epochs({1: 0, 2: 900}), epochs({1: 0, 3: 900, 4: 1200})
    assert own.adopted_from(master, LogOffset(900)) == epochs({1: 0, 3: 900})
    trimmed = epochs({3: 900, 4: 1200})
    assert own.cut_at(LogOffset(900)).adopted_from(trimmed, LogOffset(900)) == epochs(
        {1: 0, 3: 900}
    )
    assert own.adopted_from(Epochs(), LogOffset(950)) == own


# --- where two logs part: rows E5 to E8, P1 to P6, X1 to X7 of ha.md 7

END = LOG_OFFSET_MAX
B5, C5 = {0: 0, 1: 500}, {0: 0, 1: 500, 2: 900}
POINTS = {
    "E5": (THREE, END, {1: 100, 2: 300, 3: 450}, END, 450),
    "E6": (THREE, 700, THREE, 600, 600),
    "E8": ({**THREE, 4: 800}, END, THREE, 700, 700),
    "P1": ({0: 0}, 1000, {0: 0, 1: 900}, 1100, 900),
    "P2": ({0: 0}, 900, {0: 0, 1: 1000}, 1200, 900),
    "P3": ({0: 0, 1: 900}, 1200, {0: 0, 1: 900, 2: 1300}, 1400, 1200),
    "P4": ({0: 0, 1: 1000}, 1200, {0: 0, 2: 900}, 1100, 900),
    "P5 B": (B5, 1000, {0: 0, 1: 500, 3: 800}, 1200, 800),
    "P5 C": (C5, 950, {0: 0, 1: 500, 3: 800}, 1200, 800),
    "P6": ({0: 0, 2: 1000}, 1300, {0: 0, 1: 1200}, 1500, 1000),
    "X1": ({}, 0, {1: 0}, 500, None),
    "X2": ({1: 0}, 100, {}, 0, None),
    "X3": ({1: 0}, 1000, {1: 0}, 900, 900),
    "X4": ({5: 4000}, 5000, {1: 0, 5: 4000, 6: 4800}, 5200, 4800),
    "X5": ({2: 100}, 200, {3: 300}, 400, None),
    "X6": ({1: 0, 2: 100}, 100, {1: 0, 3: 100}, 250, 100),
    "X7": ({1: 0, 2: 100}, 180, {1: 0, 2: 100}, 180, 180),
    "epochs without writes": ({1: 0, 2: 0, 3: 0}, 0, {1: 0, 2: 0, 4: 0}, 50, 0),
    "the last one without writes": ({1: 0, 3: 900}, 900, {1: 0, 3: 900, 4: 950}, 980, 900),
    "the golden pair": ({1: 0}, 717163, {1: 0, 2: 407727}, 579506, 407727),
    "an entry after the own end does not count": ({1: 0, 2: 900}, 850, {1: 0, 2: 900}, 950, 850),
    "an entry after the other's end does not count": (
        {1: 0, 2: 900},
        950,
        {1: 0, 2: 900},
        850,
        850,
    ),
}
BEYOND_RIP_44 = {
    "E7: the lists contradict each other at 300": (THREE, 700, {1: 200, 2: 500}, END, 300),
    "the beginning of an epoch is no longer known": ({2: 100}, 300, {1: 0, 2: 50}, 400, 300),
    "the other's ends first": ({2: 100, 3: 500}, 700, {2: 50, 4: 250}, 400, 250),
    "different masters from the first common byte on": ({2: 100}, 300, {1: 0, 3: 90}, 400, None),
    "no byte in common": ({2: 100}, 200, {2: 250}, 400, None),
}


@pytest.mark.parametrize("name", POINTS)
def test_consistent_point(name: str) -> None:
    own, own_end, other, other_end, expected = POINTS[name]
    assert found(own, own_end, other, other_end) == expected


@pytest.mark.parametrize("name", BEYOND_RIP_44)
def test_consistent_point_where_rip_44_finds_none(name: str) -> None:
    own, own_end, other, other_end, expected = BEYOND_RIP_44[name]
    assert found(own, own_end, other, other_end) == expected

"""No folder's prose gets harder to read: the density of each habit may only fall.

`python -m tests.prose --lower` keeps the densities of today where they are lower.
"""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.prose.counting import FRAGMENT, HABITS, densities, fragments_in, hits_of

KEPT: Final = Path(__file__).with_name("densities.json")
SLACK: Final = 1.02
"""Words that go without a habit raise the density of what stays: two in a hundred are allowed."""
NEW_FOLDER: Final = 0.6
"""The highest density of a habit in a folder that is not on record."""
Densities = dict[str, dict[str, float]]


def allowed() -> Densities:
    """The highest density of each folder and habit, in 1,000 words."""
    kept: Densities = json.loads(KEPT.read_text())
    return kept


def risen(now: Densities, kept: Densities) -> list[str]:
    """A line for each density that is higher than the kept one."""
    return [
        f"{folder}: {name}: {density} in 1,000 words, allowed: {most}"
        for folder, found in now.items()
        for name, density in found.items()
        if density > SLACK * (most := kept.get(folder, {}).get(name, NEW_FOLDER))
    ]


def test_no_density_rises() -> None:
    wrong = risen(densities(), allowed())
    assert not wrong, "\n".join(wrong)


def test_a_planted_rise_is_found() -> None:
    now = {"engine": {"'is none'": 0.3, "'is over'": 0.7}, "new": {"'is none'": 0.5}}
    assert risen(now, {"engine": {"'is none'": 0.3, "'is over'": 0.6}}) == [
        "engine: 'is over': 0.7 in 1,000 words, allowed: 0.6"
    ]
    assert len(risen({"new": {"'is none'": 0.7}}, {})) == 1


@pytest.mark.parametrize(
    ("text", "habit"),
    [
        ("Keeps what is left of the file.", "clause with 'what'"),
        ("The file goes. What stays is read.", "sentence that begins with 'What'"),
        ("A peer may wait so long.", "'so many', 'so long'"),
        ("The units behind the end.", "'behind' for after"),
        ("The peer says its version.", "a machine that says, tells or hears"),
        ("The offset of the one.", "'one that', 'those of'"),
        ("A number that is none.", "'is none'"),
        ("The time is over.", "'is over'"),
        ("Read from there on.", "'from there on'"),
        ("The file is made anew.", "'anew', 'any more'"),
    ],
)
def test_each_habit_is_found(tmp_path: Path, text: str, habit: str) -> None:
    path = tmp_path / "one.py"
    path.write_text(f'"""Reads files. {text}"""\n')
    assert hits_of(path)[1][habit] == 1
    path.write_text('"""Reads one file and returns its end."""\n')
    assert hits_of(path)[1].total() == 0
    assert habit in HABITS


def test_fragments_are_found() -> None:
    assert fragments_in('"""Of a file."""\ndef go():\n    """Reads it."""\n') == 1
    assert FRAGMENT not in HABITS

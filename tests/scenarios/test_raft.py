"""The quorum behaves as its transcripts state; `make transcripts` writes them again."""

from pathlib import Path

import pytest

from tests.scenarios.raft_player import RAFT, play


@pytest.mark.parametrize("path", RAFT, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    assert play(text) == text, f"{path.name}: make transcripts, and review what changed"


def test_there_are_some() -> None:
    assert len(RAFT) >= 6

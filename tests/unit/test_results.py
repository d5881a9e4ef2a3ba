"""Results of single runs: lines that are read, chosen and printed, and the lines that are kept."""

import json
import re
from pathlib import Path

import pytest
from tests.results import reading
from tests.results.__main__ import main
from tests.results.reading import FOLDER, PAGES, BadResultError, Result, chosen, read, shown

GOOD = Result("abc1234", "make sim SUITE=store", "a store", "100 seeds, none failed", "Simulations")
OTHER = Result("", "make fuzz", "parsers", "no finding", "Hostile input")
COMMIT = re.compile(r"[0-9a-f]{7,40}|")


def write(folder: Path, *results: Result) -> Path:
    path = folder / "testing.jsonl"
    path.write_text("".join(json.dumps(vars(result)) + "\n" for result in results))
    return path


def test_results_are_read_in_order(tmp_path: Path) -> None:
    assert read(write(tmp_path, GOOD, OTHER)) == [GOOD, OTHER]
    assert read(tmp_path / "performance.jsonl") == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "testing.jsonl:1: "),
        ("[]", "the fields are not commit, command, what, result, section"),
        (json.dumps(vars(GOOD) | {"load": "2"}), "the fields are not"),
        (json.dumps({"commit": "abc1234"}), "the fields are not"),
        (json.dumps(vars(GOOD) | {"result": 7}), "a value is no text"),
        (json.dumps(vars(GOOD) | {"section": " "}), "section is empty"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "testing.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(BadResultError, match=why) as refused:
        read(path)
    assert str(refused.value).startswith("testing.jsonl:1: ")


def test_results_are_chosen_by_text_and_section() -> None:
    both = [GOOD, OTHER]
    assert chosen(both) == both
    assert chosen(both, "suite=STORE") == [GOOD]
    assert chosen(both, "abc1") == [GOOD]
    assert chosen(both, section="hostile") == [OTHER]
    assert chosen(both, "store", "hostile") == []


def test_a_result_is_shown_as_a_block() -> None:
    assert shown(GOOD).splitlines() == [
        "Simulations: a store",
        "  make sim SUITE=store (at abc1234)",
        "  100 seeds, none failed",
    ]
    assert shown(OTHER).splitlines()[1] == "  make fuzz"
    long = Result("", "make fuzz", "parsers", "word " * 100, "Hostile input")
    assert max(map(len, shown(long).splitlines())) <= reading.WIDTH


def test_the_command_prints_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, GOOD, OTHER)
    monkeypatch.setattr("tests.results.__main__.FOLDER", tmp_path)
    assert main(["testing", "--grep", "store"]) == 0
    assert capsys.readouterr().out == shown(GOOD) + "\n\n1 of 2 results\n"
    assert main(["--section", "nowhere"]) == 1
    assert capsys.readouterr().out == "0 of 2 results\n"


@pytest.mark.parametrize("page", PAGES)
def test_each_kept_result_belongs_to_a_heading_of_its_page(page: str) -> None:
    text = (FOLDER.parent / f"{page.upper()}.md").read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    for result in read(FOLDER / f"{page}.jsonl"):
        assert result.section in headings, result
        assert COMMIT.fullmatch(result.commit), result

"""A bounded sequence of text files: the newest lines stay."""

from pathlib import Path

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.rotating_jsonl import FILES, RotatingJsonl


def test_the_newest_lines_stay_within_the_bound(tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    lines = [b"%06d\n" % number for number in range(400)]
    kept = RotatingJsonl(RealFiles(), str(folder), "some")
    kept.append(lines[:150], 8 * 70)
    kept.append(lines[150:300], 8 * 70)
    again = RotatingJsonl(
        RealFiles(), str(folder), "some"
    )  # a second start appends to the same files
    (folder / "some-x.jsonl").write_text("not ours")
    again.append(lines[300:], 8 * 70)
    files = sorted(path for path in folder.iterdir() if path.name != "some-x.jsonl")
    assert len(files) == FILES
    text = b"".join(path.read_bytes() for path in files)
    assert len(text) <= 8 * 70
    assert b"".join(lines).endswith(text) and len(text) >= 7 * 70


def test_a_line_larger_than_a_file_has_one_alone(tmp_path: Path) -> None:
    kept = RotatingJsonl(RealFiles(), str(tmp_path), "some")
    kept.append([b"x" * 100 + b"\n", b"y\n"], 80)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "some-00000001.jsonl",
        "some-00000002.jsonl",
    ]

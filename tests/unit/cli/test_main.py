"""The start of a command, and its end before it has begun."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import turbopump
from turbopump.cli import app, main


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    """Descriptors 0 to 2 are open before a loop makes its own."""
    look = (
        "import os, sys\n"
        "from turbopump.cli import _open_standard_streams\n"
        "_open_standard_streams()\n"
        "[os.fstat(number) for number in range(3)]\n"
        "print('out', flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "assert sys.stdin is not None\n"
        "sys.exit(7)\n"
    )
    line = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable, look], capture_output=True, timeout=60)
    assert done.returncode == 7, done.stderr


def test_a_full_standard_output_is_one_sentence() -> None:
    for arguments in (["--help"], ["--version"], ["admin", "--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "turbopump", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
        assert (done.returncode, done.stderr) == (1, "turbopump: the disk is full\n")


def test_it_says_which_version_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["turbopump", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"turbopump {version('turbopump')}\n"
    assert turbopump.__version__ == version("turbopump")


def test_every_public_name_is_there() -> None:
    for name in turbopump.__all__:
        assert getattr(turbopump, name) is not None
    assert os.path.basename(turbopump.__file__ or "") == "__init__.py"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = turbopump.nothing

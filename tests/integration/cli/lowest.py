"""The commands under the lowest version of each dependency that pyproject.toml allows.

Owns one environment in a temporary folder: the dependencies only, as the sources are read in place.
It needs the package index and takes half a minute: `make lowest`. The development environment has
the newest versions.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

COMMANDS = (
    (0, "--help"),
    (0, "admin --help"),
    (0, "bench producer --help"),
    (0, "send --help"),
    (2, "inspect log"),
    (2, "admin updateTopic -t T -b 127.0.0.1:1 -p 9"),
    (2, "up --replicas x"),
    (1, "admin clusterList -n 127.0.0.1:1"),
)
"""Exit codes and arguments; none may end with a traceback."""

SERVED = (
    "send -t T -p one --count 3",
    "consume -t T --count 3 --timeout 20",
    "admin clusterList",
    "top --once",
)
"""Commands against a cluster that runs under the same versions."""

BAR = """
import io
from rich.console import Console
from turbopump.cli import progress
from turbopump.engine.types import Progress
shown = progress.Recovering(False)
shown.show_progress(Progress("recovering", 1, 2))
shown.remove_bar()
from rich.live import Live
console = Console(file=io.StringIO(), force_terminal=True)
from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TimeRemainingColumn
with Bar(BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console) as bar:
    bar.add_task("x", total=2)
with Live("x", console=console):
    pass
"""


def lowest() -> list[str]:
    """Each dependency at its lower bound, in pip's form."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = []
    for text in project["dependencies"]:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", text)
        assert match, f"{text} has no lower bound that can be tested"
        found.append(f"{match[1]}=={match[2]}")
    return found


def main() -> None:
    """Make the environment and run the commands; ends with an error for the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "env", "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *lowest()], check=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

        def run(*words: str, code: int = 0) -> None:
            command = [str(python), *words]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60, cwd=folder
            )
            text = done.stdout + done.stderr
            assert done.returncode == code and "Traceback" not in text, f"{command}: {text}"

        run("-c", BAR)
        for code, words in COMMANDS:
            run("-m", "turbopump", *words.split(), code=code)
        up = [str(python), "-m", "turbopump", "up", "--data", f"{folder}/data", "--json"]
        up += ["--namesrv-port", "0", "--broker-port", "0"]
        with subprocess.Popen(up, env=environment, stdout=subprocess.PIPE, text=True) as cluster:
            try:
                assert cluster.stdout is not None
                lines = map(json.loads, cluster.stdout)
                ready = next(line for line in lines if line["event"] == "ready")
                environment["NAMESRV_ADDR"] = ready["namesrv"][0]
                for words in SERVED:
                    run("-m", "turbopump", *words.split())
            finally:
                cluster.terminate()
    print("all commands run with", " ".join(lowest()))


if __name__ == "__main__":
    main()

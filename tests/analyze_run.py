"""`turbopump analyze` on the command line: each job as a process of its own. Run by CI.

A broker is filled by the load generator; the jobs' results for its store are compared with the sent
messages. The tests of `make test` run the same jobs inside one shared Spark; only here do they
start and stop their own, with its quiet JVM and its exit codes.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.spark.allocation import averaged, history, lines, sticky

PROGRAM = [sys.executable, "-m", "turbopump"]
MESSAGES = 20_000
TIMEOUT_S = 300
SMALL_FILES = "mappedFileSizeCommitLog=4194304\nmappedFileSizeConsumeQueue=200000\n"
RATE = 10_000
"""Messages a second, 2 files of the log: a slow disk that makes the next file late has sends
refused, as RocketMQ does, and this load counts on each of its messages."""


def run(*arguments: str, code: int = 0, **environment: str) -> str:
    """A command's output; fails unless it ends with `code`, and in silence if that is 0."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )
    noise = [line for line in done.stderr.splitlines() if " tasks, " not in line]
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert not noise or code, f"{arguments}: {done.stderr}"
    return done.stdout or done.stderr


def store_of(folder: Path) -> Path:
    """Fill a broker, stop it, and return the folder of its store."""
    config = folder / "broker.conf"
    config.write_text(SMALL_FILES)
    process = subprocess.Popen(
        [
            *PROGRAM,
            "up",
            "--json",
            "--data",
            str(folder / "data"),
            "-c",
            str(config),
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        load = ["-n", ready["namesrv"][0], "-q", str(MESSAGES), "--rate", str(RATE), "--json"]
        shape = ["-t", "Load", "-s", "700", "-k", "true", "-l", "3"]
        sent = json.loads(run("bench", "producer", *load, *shape))
        assert sent["messages"] == MESSAGES, sent
        store = folder / "data" / "broker-a"
        dataset = folder / "dataset"
        run("analyze", "export", str(store), "-t", "Load", "--format", "ninja", "-o", str(dataset))
        again = json.loads(run("bench", "producer", *load, "-t", "Again", "--replay", str(dataset)))
        assert (again["messages"], again["bytes"]) == (MESSAGES, sent["bytes"]), again
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
    return store


def damage(store: Path) -> int:
    """Change the magic of a record in the middle of a log's first file; where the record begins."""
    log = min((store / "commitlog").iterdir())
    data = log.read_bytes()
    at = 0
    while at < len(data) // 2:
        at += int.from_bytes(data[at : at + 4], "big")
    with log.open("r+b") as file:
        file.seek(at + 4)
        file.write(b"\xa5")
    return at


def check_store(store: Path, folder: Path) -> None:
    """The three jobs that read stores."""
    results = json.loads(
        run("analyze", "throughput", str(store), "--output", f"{folder}/throughput", "--json")
    )
    counts = {row["topic"]: row["messages"] for row in results["topics"]["rows"]}
    assert (counts["Load"], counts["Again"]) == (MESSAGES, MESSAGES), counts
    assert (folder / "throughput" / "report.html").stat().st_size > 10_000
    out = run("analyze", "export", str(store), "-t", "Load", "-o", f"{folder}/parquet")
    assert f"{MESSAGES:,} messages" in out, out
    run("analyze", "truncation", str(store))
    at = damage(store)
    assert str(at) in run("analyze", "truncation", str(store), "--local", code=1)
    damaged = ["-t", "Load", "--format", "ninja", "-o", f"{folder}/damaged"]
    assert f"is damaged at byte {at}:" in run("analyze", "export", str(store), *damaged, code=2)
    assert not (folder / "damaged").exists()


def check_histories(folder: Path) -> None:
    """The job that reads histories, and the sentence where there is no Java."""
    good = folder / "histories.jsonl"
    good.write_text(
        "\n".join(
            [*lines(history(sticky, 1, 40)), *lines(history(averaged, 2, 40, group="shipping"))]
        )
    )
    verdict = json.loads(run("analyze", "rebalance", str(good), "--json"))
    assert (verdict["verdict"], verdict["rebalances"]) == ("ok", 80), verdict
    run("analyze", "rebalance", str(good), "--min-stickiness", "0.99", code=1)
    result = run("analyze", "rebalance", str(good), code=2, JAVA_HOME=str(folder))
    assert result == (
        "turbopump analyze rebalance: Spark needs Java 17 or newer: install it, or set JAVA_HOME\n"
    ), result


def main() -> int:
    """Everything; 0 when all went well."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_histories(folder)
        check_store(store_of(folder), folder)
    print(f"throughput, truncation, rebalance and export over {2 * MESSAGES} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())

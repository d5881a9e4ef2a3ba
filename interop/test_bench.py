"""The load generator against the broker under test: its counts equal the stored messages.

`--target rocketmq` proves that it speaks the protocol of Apache's broker.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from interop.support.groups import Group

SHAPES = {
    "one-by-one": ["-w", "8"],
    "pipelined": ["-w", "4", "--in-flight", "32", "-k", "true", "-l", "3", "-p", "50"],
    "batches": ["-w", "2", "-b", "20"],
    "scheduled": ["--rate", "4000"],
}
MESSAGES = 2000


def bench(kind: str, group: Group, *arguments: str) -> dict[str, Any]:
    """Run a load that succeeds; returns its JSON result."""
    command = [
        sys.executable,
        "-m",
        "turbopump",
        "bench",
        kind,
        "-n",
        group.ports.namesrv_address,
        "-q",
        str(MESSAGES),
        "--json",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("encoding", ["json", "rocketmq"])
@pytest.mark.parametrize("shape", SHAPES)
def test_load(group: Group, shape: str, encoding: str) -> None:
    at = ["-t", f"load-{shape}-{encoding}", "--encoding", encoding]
    sent = bench("producer", group, *at, *SHAPES[shape])
    # A busy machine makes RocketMQ refuse some sends (SYSTEM_BUSY): they are counted, not lost.
    refused = sum(sent["errors"].values()) * (20 if shape == "batches" else 1)
    assert sent["messages"] + refused == MESSAGES
    assert set(sent["errors"]) <= {"2"}
    read = bench("consumer", group, *at, "--check-crc")
    assert (read["messages"], read["errors"]) == (sent["messages"], {})


@pytest.mark.parametrize("encoding", ["json", "rocketmq"])
def test_mixed_load(group: Group, encoding: str) -> None:
    at = ["-t", f"load-mixed-{encoding}", "--encoding", encoding, "-w", "8", "--rate", "4000"]
    found = bench("mixed", group, *at)
    assert found["consumer"]["messages"] == found["producer"]["messages"] > 0

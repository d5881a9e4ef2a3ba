"""The README's Python snippets run as they are pasted, one after the other in an empty folder."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import readme

from turbopump.net.grpc.server import why_no_grpc
from turbopump.testing import RunningCluster, running_cluster

pytestmark = pytest.mark.integration

NAMESRV = "127.0.0.1:9876"
ENDPOINTS = "127.0.0.1:10911"
SNIPPETS = readme.blocks("python")
SHOWN = {
    "def test_my_service": "",
    "TransactionProducer(": "the local transaction",
    "Producer(endpoints=": "SEND_OK",
    "Producer(": "Orders new one",
    "SimpleConsumer(": "one",
    "PopConsumer(": "shipped one",
    "on_message": "noted ",
    "Cluster(data=": "BrokerAddress(name='broker-a'",
    "read_arrow(": " messages",
    "SparkSession": "tests/integration/spark/test_readme.py",
}
"""Expected output by a text in a snippet; the first text that matches counts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RunningCluster]:
    """The cluster that `make run` would have started there."""
    with running_cluster(folder / "turbopump-data") as running:
        yield running


def test_each_snippet_is_known() -> None:
    found = [next(word for word in SHOWN if word in snippet) for snippet in SNIPPETS]
    assert sorted(found) == sorted(SHOWN)


@pytest.mark.parametrize("snippet", [text for text in SNIPPETS if "SparkSession" not in text])
def test_a_snippet_runs_as_pasted(
    snippet: str,
    cluster: RunningCluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "turbopump.spark" in snippet:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    if ENDPOINTS in snippet and why_no_grpc() is not None:
        pytest.skip("libnghttp2 is not installed")
    code = snippet.replace(NAMESRV, cluster.namesrv)
    code = code.replace(ENDPOINTS, cluster.brokers[0].grpc)
    shown = snippet.count(NAMESRV) + snippet.count(ENDPOINTS)
    assert "turbopump_cluster" in code or code.count("127.0.0.1") == shown
    exec(compile(code, "README.md", "exec"), names)
    tests: list[Callable[..., None]] = [
        found for name, found in names.items() if name.startswith("test_")
    ]
    for test in tests:
        test(turbopump_cluster=cluster)
    printed = next(text for word, text in SHOWN.items() if word in snippet)
    assert printed in capsys.readouterr().out

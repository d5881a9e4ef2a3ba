"""The README's Spark snippet runs as it is pasted."""

from pathlib import Path
from typing import Any

import pytest
from tests import readme

from turbopump.net.client.messages import Message
from turbopump.net.client.producer import Producer
from turbopump.testing import running_cluster


async def send(namesrv: str) -> None:
    async with Producer("g", namesrv) as producer:
        await producer.send(Message("Orders", b"one"))


def test_the_spark_snippet_runs_as_pasted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = [text for text in readme.blocks("python") if "SparkSession" in text]
    monkeypatch.chdir(tmp_path)
    with running_cluster(tmp_path / "turbopump-data") as cluster:
        cluster.run(send(cluster.namesrv))
        # The JVM has a working directory of its own.
        code = snippet.replace('"turbopump-data', f'"{tmp_path}/turbopump-data')
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    assert "|Orders|" in capsys.readouterr().out.replace(" ", "")

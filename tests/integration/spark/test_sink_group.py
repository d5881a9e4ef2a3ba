"""Rows to a group of three brokers that accepts only TLS, also while its master goes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbopump.net.transport.tls import _make_self_signed
from turbopump.spark import read_arrow
from turbopump.testing import RunningCluster, running_cluster

ROWS = 3_000
SOME = 50
"""Rows that are stored before the master goes."""
WAIT_S = 120


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    for name, content in zip(("cert.pem", "key.pem"), _make_self_signed(), strict=True):
        (folder / name).write_bytes(content)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[RunningCluster]:
    properties = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(certificate.with_name("key.pem")),
    }
    data = tmp_path_factory.mktemp("group")
    with running_cluster(data, properties, brokers=3, controllers=1) as made:
        yield made


def stored(group: RunningCluster, topic: str) -> list[list[str]]:
    """Bodies of a topic in each broker's own log, the longest log first, including unconfirmed
    ones.
    """
    found: list[list[str]] = []
    for path in group.data.glob("*/commitlog"):
        log = read_arrow(str(path.parent), topics=[topic], columns=["body"], confirmed=False)
        found.append([row.decode() for row in log.read_all()["body"].to_pylist()])
    return sorted(found, key=len, reverse=True)


def test_rows_go_by_tls(
    spark: Any, group: RunningCluster, certificate: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.pem").write_bytes(_make_self_signed()[0])
    frame = spark.createDataFrame([("x",), ("y",)], "body string")
    sink = (
        frame.write.format("turbopump")
        .mode("append")
        .options(namesrv=group.namesrv, topic="Sealed", timeoutMs="1000")
    )
    with pytest.raises(Exception, match="perhaps it takes TLS connections only"):
        sink.save()
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        sink.option("tls", str(tmp_path / "other.pem")).save()
    assert stored(group, "Sealed")[0] == []
    sink.option("tls", str(certificate)).save()
    sink.option("tls", "true").save()
    assert sorted(stored(group, "Sealed")[0]) == ["x", "x", "y", "y"]


def test_rows_outlive_the_master(spark: Any, group: RunningCluster, certificate: Path) -> None:
    """The last requests to the master are sent again: every row is stored, some perhaps twice."""
    # A sharding key each: a request for a row, one at a time, so that it takes seconds.
    frame = spark.range(ROWS, numPartitions=2).selectExpr(
        "cast(id as string) as body", "cast(id as string) as sharding_key"
    )
    sink = (
        frame.write.format("turbopump")
        .mode("append")
        .options(namesrv=group.namesrv, topic="Moved", tls=str(certificate), inFlight="1")
    )
    before: list[int] = []

    def stop_the_master() -> None:
        deadline = time.monotonic() + WAIT_S
        while len(stored(group, "Moved")[0]) < SOME and time.monotonic() < deadline:
            time.sleep(0.01)
        group.stop_broker(group.brokers[0])
        before.append(len(stored(group, "Moved")[0]))

    stopping = threading.Thread(target=stop_the_master)
    stopping.start()
    sink.save()
    stopping.join()
    assert SOME <= before[0] < ROWS, "the master went in the midst"
    wanted = {str(number) for number in range(ROWS)}
    deadline = time.monotonic() + WAIT_S
    # Logs of the two remaining brokers: the killed one cannot have all.
    while sum(set(bodies) == wanted for bodies in stored(group, "Moved")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)

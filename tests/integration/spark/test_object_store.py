"""A store in a bucket: an S3 server over HTTP gives the same table as the local folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs
from tests.integration.spark.test_batch import load, rows
from tests.spark_stores import fill, model_rows, opened

from turbopump.engine.types import StoreError
from turbopump.spark import read_arrow

BUCKET = "bucket"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files."""
    root = tmp_path_factory.mktemp("s3") / "store"
    with opened(root) as made:
        fill(made, 200)
    return root


@pytest.fixture(scope="module")
def query(store: Path) -> Iterator[str]:
    """Query of the server's address, to append to the path of the store in the bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        target = fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        target.create_dir(BUCKET)
        fs.copy_files(
            str(store),
            f"{BUCKET}/store",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=target,
        )
        yield f"?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


def test_a_store_in_a_bucket(spark: Any, store: Path, query: str) -> None:
    location = f"s3://key:secret@{BUCKET}/store{query}"
    expected = model_rows(store, location)
    local = read_arrow(str(store)).read_all().drop(["store"])
    assert read_arrow(location).read_all().drop(["store"]).equals(local)
    found = load(spark, location, partitionBytes=5000)
    assert rows(found) == expected
    of_topic = [row for row in expected if row["topic"] == expected[0]["topic"]]
    assert rows(found.where(found.topic == expected[0]["topic"])) == of_topic


def test_rows_outside_the_bucket(query: str) -> None:
    with pytest.raises(StoreError, match="other"):
        read_arrow(f"s3://key:secret@{BUCKET}/other{query}")
    with pytest.raises(StoreError, match="absent"):
        read_arrow(f"s3://key:secret@absent/store{query}")

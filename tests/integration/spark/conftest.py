"""Fixture of a Spark session for all tests of this folder: a JVM costs seconds and half a
gigabyte."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark_stores import unpack_golden

from turbopump.spark import register, session

SETTINGS = (
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
    "spark.sql.streaming.metricsEnabled=false",
    # On a few thousand rows compiling a query, by Spark and by the JVM, is most of its time.
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)

DELTA = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
"""Delta's jars by the release of Spark that they were made for; they fail with any other."""


def delta_jars() -> str | None:
    """The jars of Delta for the Spark that is installed, if there are any."""
    pyspark = pytest.importorskip("pyspark")
    return DELTA.get(".".join(pyspark.__version__.split(".")[:2]))


def delta_settings() -> tuple[str, ...]:
    """Settings of a session with Delta."""
    jars = delta_jars()
    if jars is None:
        return ()
    return (
        f"spark.jars.packages={jars}",
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark on two cores that knows the source; skipped with the reason without Java."""
    pytest.importorskip("pyspark")
    if session.find_java() is None:
        pytest.skip("Spark needs Java: none is on the path, and JAVA_HOME is not set")
    made = session.start("turbopump-tests", "local[2]", (*SETTINGS, *delta_settings()))
    register(made)
    yield made
    made.stop()


@pytest.fixture
def delta(spark: Any) -> Any:
    """The same Spark, if it knows Delta; skipped with the reason if no Delta was made for it."""
    if delta_jars() is None:
        pytest.skip(f"no Delta was made for Spark {spark.version}: see tests/spark_version.py")
    return spark


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The stores that a real RocketMQ wrote, by name."""
    return unpack_golden(tmp_path_factory.mktemp("golden"))

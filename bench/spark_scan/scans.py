"""The compared scans: in Spark, with a separate JVM for each number of cores; and without Spark.

`python -m bench.spark_scan.scans FOLDER CORES ROUNDS` prints a Spark's result as JSON.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.spark_scan.filled import store_folder
from bench.spark_scan.memory import Watch, cpu_s
from pyspark.sql import functions as f

from turbopump.pyx import record
from turbopump.pyx.region import Region
from turbopump.spark import read_arrow, register, session
from turbopump.spark.schema import COLUMNS, COLUMNS_WITHOUT_BODY
from turbopump.spark.source.options import likely_batch_rows

LIMITS_C = Path(__file__).resolve().parent.parent / "limits.c"
PARQUET = "parquet"
FEW = ("topic", "queue_id", "store_time", "size")
KINDS = {"all but bodies": COLUMNS_WITHOUT_BODY, "four columns": FEW}
HEAP = "2g"


def best_s(work: Callable[[], object], rounds: int) -> float:
    """Run `work` `rounds` times; return the shortest time in s."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def open_source(spark: Any, folder: Path, columns: tuple[str, ...]) -> Any:
    """Open the store in `folder` as a frame with these columns, by Turbopump's data source."""
    reader = spark.read.format("turbopump").option("columns", ",".join(columns))
    return reader.load(str(store_folder(folder)))


def compute_all(frame: Any) -> None:
    """Compute every row of a frame and discard it."""
    frame.write.format("noop").mode("overwrite").save()


def measure_in_spark(folder: Path, cores: int, rounds: int) -> dict[str, Any]:
    """Measure scans of the store and of the same rows as Parquet in a Spark with `cores` cores:
    times, CPU times, memory and sums of the rows, as JSON values."""
    settings = (f"spark.driver.memory={HEAP}", "spark.sql.shuffle.partitions=2")
    spark = session.start("spark_scan", f"local[{cores}]", settings)
    register(spark)
    parquet = folder / PARQUET
    if not (parquet / "_SUCCESS").exists():
        frame = open_source(spark, folder, COLUMNS_WITHOUT_BODY)
        frame.write.mode("overwrite").parquet(str(parquet))
    found: dict[str, Any] = {"cores": cores, "scans": {}}
    with Watch(os.getpid()) as watch:
        found["sums"] = compute_sums(spark, folder)
        for name, columns in KINDS.items():
            sides = {
                "ours": open_source(spark, folder, columns),
                "parquet": spark.read.parquet(str(parquet)).select(*columns),
            }
            found["scans"][name] = best_in_turns(sides, rounds)
        found["scans"]["with bodies"] = best_in_turns(
            {"ours": open_source(spark, folder, COLUMNS)}, 1
        )
    found |= {
        "worker_mb": watch.worker_mb,
        "workers_mb": watch.workers_mb,
        "jvm_mb": watch.jvm_mb,
        "version": spark.version,
    }
    spark.stop()
    return found


def best_in_turns(sides: dict[str, Any], rounds: int) -> dict[str, dict[str, float]]:
    """Run each side `rounds` + 1 times in turn, because the first run warms the JVM up; return by
    side the shortest run's duration and CPU times in s."""
    best: dict[str, dict[str, float]] = {side: {} for side in sides}
    for _ in range(rounds + 1):
        for side, frame in sides.items():
            begin, (jvm_s, workers_s) = time.perf_counter(), cpu_s(os.getpid())
            compute_all(frame)
            taken = {"seconds": time.perf_counter() - begin}
            after = cpu_s(os.getpid())
            taken |= {"jvm_s": after[0] - jvm_s, "workers_s": after[1] - workers_s}
            # The time of a worker that ended meanwhile is lost, so the difference may be negative.
            if taken["seconds"] < best[side].get("seconds", float("inf")):
                best[side] = {name: max(0.0, value) for name, value in taken.items()}
    return best


def compute_sums(spark: Any, folder: Path) -> dict[str, int]:
    """Return numbers of records, bytes and queues of the store, computed by Spark, by name."""
    columns = ("topic", "queue_id", "queue_offset", "log_offset", "size", "body_size")
    frame = open_source(spark, folder, columns)
    row = frame.agg(
        f.count("*").alias("rows"),
        f.sum("size").alias("record_bytes"),
        f.sum("body_size").alias("body_bytes"),
        f.max(f.col("log_offset") + f.col("size")).alias("log_end"),
        f.count_distinct("topic", "queue_id").alias("queues"),
    ).first()
    ends = frame.groupBy("topic", "queue_id").agg(
        (f.max("queue_offset") + 1).alias("end"), f.count("*").alias("count")
    )
    return {name: int(row[name]) for name in row.asDict()} | {
        "queued": sum(one["end"] for one in ends.collect()),
    }


def map_log_files(folder: Path) -> Iterator[tuple[mmap.mmap, int]]:
    """Yield each file of the log, mapped, and the end of its records."""
    for path in sorted((store_folder(folder) / "commitlog").iterdir()):
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
        region = Region(mapped)
        end = record.validate(region, 0, region.size, False).position
        region.release()
        if end:
            yield mapped, end


def measure_without_spark(folder: Path, rounds: int) -> dict[str, float]:
    """Return the bytes of log per second on one core, for several loops.

    These are a C loop over its words, our decoder, and our decoder with Arrow's arrays.
    """
    library = folder / "limits.so"
    subprocess.run(["gcc", "-O3", "-shared", "-fPIC", "-o", library, LIMITS_C], check=True)
    limit_scan = ctypes.CDLL(str(library)).limit_scan
    limit_scan.restype = ctypes.c_uint64
    mapped = list(map_log_files(folder))
    total = sum(end for _memory, end in mapped)

    def c_scan() -> None:
        for memory, end in mapped:
            limit_scan((ctypes.c_char * len(memory)).from_buffer(memory), ctypes.c_size_t(end))

    def arrow(columns: tuple[str, ...]) -> Callable[[], None]:
        def run() -> None:
            store = str(store_folder(folder))
            rows = likely_batch_rows(columns)
            for _batch in read_arrow(store, columns=columns, batch_rows=rows):
                pass

        return run

    return {
        "a C loop over all bytes": total / best_s(c_scan, rounds),
        "read_arrow, all columns": total / best_s(arrow(COLUMNS), rounds),
        "read_arrow, without bodies": total / best_s(arrow(COLUMNS_WITHOUT_BODY), rounds),
        "read_arrow, four columns": total / best_s(arrow(FEW), rounds),
    }


def measure_in_process(folder: Path, cores: int, rounds: int) -> dict[str, Any]:
    """Run `measure_in_spark` in a separate process, and so with a separate JVM."""
    module = "bench.spark_scan.scans"
    command = [sys.executable, "-m", module, str(folder), str(cores), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(measure_in_spark(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

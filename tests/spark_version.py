"""Spark's tests under another release of Spark than the pinned one. Run by hand.

    python -m tests.spark_version 4.2.0                 all of tests/integration/spark
    python -m tests.spark_version 4.2.0 -k recipes      with pytest's own options

The release lies in build/ and comes before the environment's; the environment is not changed. Two
things show only here: that the source reads right under older releases, and the recipe for Delta,
whose jars appear months after each release of Spark.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    if not arguments or not arguments[0][0].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    version, *options = arguments
    place = ROOT / "build" / f"pyspark-{version}"
    if not (place / "pyspark").exists():
        install = ["install", "--quiet", "--no-deps", "--target", str(place), f"pyspark=={version}"]
        subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    tests = [sys.executable, "-m", "pytest", "tests/integration/spark", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("SPARK_HOME", None)
    return subprocess.run([*tests, *options], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

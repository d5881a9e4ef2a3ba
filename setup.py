"""Builds every pyx/*.pyx with the csrc/ units it links; all metadata is in pyproject.toml.

Sources go through src/turbopump/pyx because that path is how Cython finds the .pxd files of
package turbopump.pyx (style.md section 8).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

PACKAGE, HERE = "turbopump", Path("src/turbopump/pyx")
C_UNITS: dict[str, list[str]] = {
    "crc32": ["crc32"],
    "record": ["record", "crc32"],
    "queue": ["queue_unit"],
    "index": ["hash_index"],
    "dispatch": ["dispatch", "record", "crc32", "queue_unit", "hash_index"],
    "frame": ["frame"],
    "walk": ["walk", "record", "crc32"],
    "columns": ["columns", "columns_text", "utf8", "record", "crc32"],
    "traffic": ["traffic", "traffic_properties", "traffic_reply", "json_text"],
    "load_parts": ["load_frame", "load_hist", "record", "crc32"],
    "load": ["load", "load_frame", "load_hist", "frame", "record", "crc32"],
    "lane": [
        "lane", "names", "traffic", "traffic_properties", "traffic_reply", "json_text", "dispatch",
        "record", "crc32", "queue_unit", "hash_index",
    ],
    "pulls": ["lane_pull", "names", "queue_unit", "walk", "record", "crc32"],
    "held": ["traffic_reply", "json_text"],
    "fast": ["traffic", "json_text", "traffic_reply"],
}
SANITIZE = ["-fsanitize=address,undefined"] if os.environ.get("TURBOPUMP_SANITIZE") else []
WERROR = ["-Werror"] if os.environ.get("TURBOPUMP_WERROR") else []
# Python's own flags carry -DNDEBUG; asserts stay on (-UNDEBUG last wins).
CFLAGS = ["-std=c11", "-O3", "-fno-strict-aliasing", "-Wall", "-Wextra", *WERROR, "-UNDEBUG"]


def extension(pyx: Path) -> Extension:
    """One extension from one .pyx and the C units listed for it."""
    units = C_UNITS.get(pyx.stem, [])
    return Extension(
        f"{PACKAGE}.pyx.{pyx.stem}",
        include_dirs=["csrc"],
        depends=["csrc/bytes.h", *(f"csrc/{unit}.h" for unit in units)],
        sources=[str(pyx), *(f"csrc/{unit}.c" for unit in units)],
        extra_compile_args=[*CFLAGS, *SANITIZE],
        extra_link_args=SANITIZE,
    )


setup(
    packages=find_packages("src"),
    package_dir={"": "src"},
    include_package_data=False,
    package_data={PACKAGE: ["py.typed"], f"{PACKAGE}.pyx": ["*.pyi"]},
    ext_modules=cythonize(
        [extension(pyx) for pyx in sorted(HERE.glob("*.pyx"))],
        include_path=[str(HERE)],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "embedsignature": True,
            "autotestdict": False,
        },
    ),
)

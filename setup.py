"""Builds csrc/ once as a static library and every pyx/*.pyx on it; all metadata is in
pyproject.toml. csrc/*.py write headers in C, into build/generated, from Python's declarations.

Sources go through src/turbopump/pyx because that path is how Cython finds the .pxd files of
package turbopump.pyx: with a mapping by `package_dir` it passes them over without a word
(cython#2452).
"""

import os
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

PACKAGE, HERE = "turbopump", Path("src/turbopump/pyx")
CSRC, GENERATED = Path("csrc"), Path("build/generated")
for script in sorted(CSRC.glob("*.py")):
    # A process of its own: sources of the rooms must not stay imported in the installer's.
    environment = {**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, str(script), str(GENERATED)], env=environment, check=True)
INCLUDES = [str(CSRC), str(GENERATED)]
UNITS = sorted(map(str, CSRC.glob("*.c")))
HEADERS = sorted(str(path) for folder in (CSRC, GENERATED) for path in folder.glob("*.h"))
# -O1 after the -O3 below: instrumented kernels take twice as long to compile otherwise.
SANITIZED = bool(os.environ.get("TURBOPUMP_SANITIZE"))
SANITIZE = ["-fsanitize=address,undefined", "-O1"] if SANITIZED else []
WERROR = ["-Werror"] if os.environ.get("TURBOPUMP_WERROR") else []
# Python's own flags carry -DNDEBUG; asserts stay on (-UNDEBUG last wins).
CFLAGS = ["-std=c11", "-O3", "-fno-strict-aliasing", "-Wall", "-Wextra", *WERROR, "-UNDEBUG"]
CFLAGS += SANITIZE
LIBRARY = {
    "sources": UNITS,
    "include_dirs": INCLUDES,
    "cflags": CFLAGS,
    "obj_deps": {"": HEADERS},
}


def extension(pyx: Path) -> Extension:
    """One extension from one .pyx; the linker takes from the library what it calls."""
    return Extension(
        f"{PACKAGE}.pyx.{pyx.stem}",
        include_dirs=INCLUDES,
        depends=[*UNITS, *HEADERS],
        sources=[str(pyx)],
        extra_compile_args=CFLAGS,
        extra_link_args=SANITIZE,
        libraries=["dl"] if pyx.stem == "h2" else [],
    )


class Build(build_ext):
    """Takes symbols out of what is packed: a fifth of the size. Who builds in place debugs."""

    def run(self) -> None:
        packs = not (self.inplace or self.editable_mode or SANITIZED)
        super().run()
        if packs:
            subprocess.run(["strip", "--strip-all", *self.get_outputs()], check=True)


setup(
    cmdclass={"build_ext": Build},
    packages=find_packages("src"),
    package_dir={"": "src"},
    include_package_data=False,
    package_data={PACKAGE: ["py.typed"], f"{PACKAGE}.pyx": ["*.pyi"]},
    libraries=[("turbopump_csrc", LIBRARY)],
    # One .pyx makes one object file, so extensions can be compiled side by side.
    options={"build_ext": {"parallel": True}},
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

"""Results of an installation: bytecode of every room, extensions without symbols in a wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
cdef extern from "one.h":
    int one()

def get():
    return one()
"""


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An installed checkout with a linked room and an ordinary folder."""
    files = {
        "src/turbopump/__init__.py": "",
        "room/core.py": "A = 1\n",
        "room/inner/deep.py": "B = 2\n",
        "src/turbopump/cli/app.py": "C = 3\n",
        "setup.py": "",
        "pyproject.toml": "",
        ".venv/bin/turbopump": "#!/bin/sh\n",
        ".venv/.run": "",
        ".venv/.dev": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / ".venv/bin/turbopump").chmod(0o755)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "src/turbopump/room").symlink_to("../../room")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for stamp in (".run", ".dev"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def test_bytecode_is_there_whatever_the_environment_says(checkout: Path) -> None:
    run(checkout, "make", "run")
    found = {path.name.partition(".")[0] for path in checkout.rglob("*.pyc")}
    assert found == {"__init__", "core", "deep", "app"}
    assert "compileall" in run(checkout, "make", "-n", "test")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Sources of an extension and of its kernel, which returns 1."""
    package = tmp_path / "src/turbopump/pyx"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "one.pyx").write_text(KERNEL)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/one.h").write_text("int one(void);\n")
    (tmp_path / "csrc/one.c").write_text('#include "one.h"\nint one(void) { return 1; }\n')
    shutil.copy(ROOT / "setup.py", tmp_path)
    return tmp_path


BUILD = (sys.executable, "setup.py", "-q", "build_clib", "build_ext")
CALL = (sys.executable, "-c", "import one; print(one.get())")


def test_extensions_have_symbols_only_where_they_are_built_in_place(kernels: Path) -> None:
    run(kernels, *BUILD, "--inplace")
    (debugged,) = (kernels / "src/turbopump/pyx").glob("one.*.so")
    assert b".symtab" in debugged.read_bytes()
    run(kernels, *BUILD)
    (packed,) = (kernels / "build").rglob("lib*/**/one.*.so")
    assert b".symtab" not in packed.read_bytes()
    assert run(packed.parent, *CALL) == "1\n"


TABLES = """
import sys
from pathlib import Path

from turbopump.numbers import ONE

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "table.h").write_text(f"enum {{ ONE = {ONE} }};")
"""


def test_c_that_is_made_from_python_follows_it(kernels: Path) -> None:
    numbers = kernels / "src/turbopump/numbers.py"
    (kernels / "csrc/tables.py").write_text(TABLES)
    (kernels / "csrc/one.c").write_text(
        '#include "one.h"\n#include "table.h"\nint one(void) { return ONE; }\n'
    )
    for number in (1, 2):
        numbers.write_text(f"ONE = {number}\n")
        run(kernels, *BUILD, "--inplace")
        assert run(kernels / "src/turbopump/pyx", *CALL) == f"{number}\n"


def test_c_is_made_before_any_extension_is_built(tmp_path: Path) -> None:
    script = (
        "import runpy, sys\n"
        "sys.modules['turbopump.pyx'] = None\n"
        "runpy.run_path('csrc/wire_tables.py', run_name='__main__')\n"
    )
    run(ROOT, sys.executable, "-c", script, str(tmp_path))
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in (ROOT / "build/generated").iterdir()}

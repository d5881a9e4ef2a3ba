"""The source itself under test: lint, types, layers, sizes, stub truth, dead files.

They run with the tests, so none is forgotten; each check names the file and the remedy.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
FILE_LINES_MAX = 600
FOLDER_FILES_MAX = 20
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 100
ROOMS = ["pyx", "engine", "net", "controller", "broker", "namesrv", "spark"]
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h"}


def tracked(*suffixes: str) -> Iterator[Path]:
    """Source files of the tree, not through the links under src/turbopump."""
    wanted = set(suffixes) or SUFFIXES
    places = ["csrc", *ROOMS, "src/turbopump", "bench", "interop", "tests", "setup.py"]
    for place in places:
        base = ROOT / place
        for path in [base] if base.is_file() else sorted(base.rglob("*")):
            if path.suffix in wanted and path.is_file() and not is_inside_link(path.parent):
                yield path


@cache
def is_inside_link(folder: Path) -> bool:
    """Whether a folder is a link, or lies in one."""
    return folder != ROOT and (folder.is_symlink() or is_inside_link(folder.parent))


def run(*command: str) -> None:
    """Run a checker in the project and fail with its own words."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_ruff_finds_nothing() -> None:
    run(str(BIN / "ruff"), "check", "--no-cache", ".")


def test_the_formatter_decides_how_lines_break() -> None:
    run(str(BIN / "ruff"), "format", "--check", "--no-cache", ".")


@pytest.mark.timeout(600)
def test_types_are_strict() -> None:
    run(str(BIN / "mypy"), "-p", "turbopump")
    # Most of these run after the tests only, or by hand.
    run(str(BIN / "mypy"), "--explicit-package-bases", "bench", "interop", "csrc")


def test_layers_of_python_modules() -> None:
    run(str(BIN / "lint-imports"), "--no-cache")


@pytest.mark.timeout(600)
def test_stubs_tell_the_truth() -> None:
    modules = [f"turbopump.pyx.{path.stem}" for path in sorted((ROOT / "pyx").glob("*.pyx"))]
    run(sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", *modules)


def test_servers_need_nothing_of_the_analytics() -> None:
    """A broker runs without the extra `spark`; of spark/ only Spark's modules need a JVM.

    import-linter cannot check it: with external packages it takes the extensions for such.
    """
    heavy = {"pyarrow", "pyspark", "py4j", "mmap_ninja", "numpy", "matplotlib", "pandas"}
    for path in tracked(".py"):
        room = path.relative_to(ROOT).parts[0]
        if room not in {*ROOMS, "src"} or room == "spark":
            continue
        tree = ast.parse(path.read_text())
        for node in tree.body if room == "src" else ast.walk(tree):  # commands may, when they run
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert name.partition(".")[0] not in heavy, f"{path}: imports {name}"


def test_layers_of_cython_modules() -> None:
    """import-linter does not read .pyx: they may import only pyx siblings and libc/cpython."""
    allowed = re.compile(r"^(turbopump\.pyx|libc|cpython|cython|posix|c_\w+)(\.|$)")
    for path in tracked(".pyx", ".pxd"):
        for line in path.read_text().splitlines():
            found = re.match(r"\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", line)
            if found:
                name = found.group(1) or found.group(2)
                assert allowed.match(name), f"{path}: imports {name}"


def test_kernels_know_no_python() -> None:
    """Shells do I/O: the load generator's loop may see errno; I/O threads are threads, whose own
    memory cannot come from Python."""
    banned = ("Python.h", "malloc(", "calloc(", "free(", "errno", "pthread", "time(")
    threads = {"Python.h", "time("}
    shells = {
        "load.c": {*banned} - {"errno"},
        "io_thread.c": threads,
        "io_thread.h": threads,
        "io_loop.c": threads,
        "byte_ring.c": threads,
        "byte_ring.h": threads,
    }
    for path in tracked(".c", ".h"):
        if path.parent.name == "csrc":
            text = path.read_text()
            for word in shells.get(path.name, banned):
                assert not re.search(rf"(?<![\w]){re.escape(word)}", text), f"{path}: uses {word}"


def test_file_sizes() -> None:
    for path in tracked():
        lines = path.read_text().count("\n")
        assert lines <= FILE_LINES_MAX, f"{path}: {lines} lines tell more than one story"


def test_folders_stay_small() -> None:
    """A stub belongs to its module. Kernels lie side by side: their folder is one include path."""
    flat = {"csrc", "pyx"}
    seen: dict[Path, int] = {}
    for path in tracked(".py", ".pyx", ".c"):
        seen[path.parent] = seen.get(path.parent, 0) + (path.name != "__init__.py")
    for folder, count in seen.items():
        name = str(folder.relative_to(ROOT))
        assert count <= FOLDER_FILES_MAX or name in flat, f"{name}: {count} files want folders"


def test_line_lengths() -> None:
    for path in tracked(".pyx", ".pxd", ".pyi", ".c", ".h"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert len(line) <= LINE_COLUMNS_MAX, f"{path}:{number}: {len(line)} columns"


def test_function_sizes() -> None:
    for path in tracked(".py"):
        text = path.read_text()
        if text.count("\n") <= FUNCTION_LINES_MAX:
            continue
        for node in statements(ast.parse(text).body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                assert length <= FUNCTION_LINES_MAX, f"{path}:{node.lineno} {node.name}: {length}"


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, however deep; their expressions, which are most of a tree, hold no
    function.
    """
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []))
        for inside in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(inside.body)


def test_function_sizes_of_c() -> None:
    for path in tracked(".c", ".h"):
        start = 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("{") or (re.match(r"^[a-z].*\)\s*\{$", line)):
                start = number
            elif line.startswith("}") and start:
                length = number - start + 1
                assert length <= FUNCTION_LINES_MAX, f"{path}:{start}: {length} lines"
                start = 0


def test_function_sizes_of_cython() -> None:
    opening = re.compile(r"^(\s*)(?:cp?def|def)\s(?!class|extern|enum|struct|packed).*[:(,]\s*$")
    for path in tracked(".pyx"):
        start, indent = 0, 0
        lines = [*path.read_text().splitlines(), "end"]
        last = 0
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            depth = len(line) - len(line.lstrip())
            if start and depth <= indent and not line.strip().startswith((")", "#")):
                length = last - start + 1
                assert length <= FUNCTION_LINES_MAX, f"{path}:{start}: {length} lines"
                start = 0
            found = opening.match(line)
            if found and not start:
                start, indent = number, len(found.group(1))
            last = number


def test_nothing_is_left_for_later() -> None:
    kinds = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]
    words = re.compile(rf"\b({'|'.join(kinds)})\b")
    for path in tracked():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not words.search(line), f"{path}:{number}: {line.strip()}"


def test_every_module_has_its_docstring() -> None:
    for path in tracked(".py"):
        if path.parts[len(ROOT.parts)] not in {"tests", "bench", "interop"}:
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path}: no module docstring"


def test_no_module_is_dead() -> None:
    """Each module of the rooms is imported by another module (entry points apart)."""
    entries = {"turbopump.cli.__main__", "turbopump.testing", "turbopump.__main__"}
    entries.add("turbopump.pyx.traffic")  # tests read the native entries through it
    # Replication: node.py starts the service in the next step.
    cores = ["broker.ha.service"]
    entries |= {f"turbopump.{name}" for name in cores}
    imported: set[str] = set()
    modules: dict[str, Path] = {}
    for path in tracked(".py", ".pyx"):
        room = path.relative_to(ROOT)
        if room.parts[0] in ROOMS or room.parts[0] == "src":
            parts = room.parts[2:] if room.parts[0] == "src" else room.parts
            name = ".".join(["turbopump", *parts]).removesuffix(path.suffix)
            modules[name.removesuffix(".__init__")] = path
            text = path.read_text()
            for found in re.finditer(r"(?:from|import|cimport)\s+(turbopump[\w.]*)", text):
                imported.add(found.group(1))
            for found in re.finditer(
                r"from\s+(turbopump[\w.]*)\s+c?import\s+(\([^)]*\)|[^\n]+)", text
            ):
                for name_part in re.findall(r"\w+", found.group(2)):
                    imported.add(f"{found.group(1)}.{name_part}")
            for found in re.finditer(r"[\"'](turbopump\.[\w.]+?)[\"':]", text):
                imported.add(found.group(1))
    for name, path in modules.items():
        if path.name not in {"__init__.py", "__main__.py"} and name not in entries:
            assert name in imported, f"{path}: no module imports {name}"


def test_links_are_links() -> None:
    for room in ROOMS:
        link = ROOT / "src" / "turbopump" / room
        assert link.is_symlink(), f"{link} is not a link to the room"


def test_no_place_of_one_machine() -> None:
    words = re.compile(r"/(?:root|home/\w+|work)/")
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        path = ROOT / name
        if path.suffix in {".zst", ".bin", ".conf"} or path.is_symlink() or not path.is_file():
            continue
        if name == "tests/test_source.py":
            continue
        found = words.search(path.read_text(errors="replace"))
        assert not found, f"{name}: names {found.group(0) if found else ''}"


def test_paths_of_a_store_are_made_of_names_in_one_place() -> None:
    """A topic is a text that some peer sent: one module alone puts it into a path."""
    made = re.compile(r"\{[\w.]*(?:folder|root)\}/\{[^}]*(?:topic|queue_id)")
    for path in (ROOT / "engine").rglob("*.py"):
        found = made.search(path.read_text())
        assert path.name == "store_paths.py" or not found, f"{path}: {found}"

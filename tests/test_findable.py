"""Every module has its tests at the mirrored path, or names them in its docstring.

The tests of `broker/pop/lives.py` are `tests/unit/broker/pop/test_lives.py`. Without a file there
the docstring ends with `Tests:` and the paths of the files that test the module.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = (
    *("engine", "net", "broker", "namesrv", "controller", "spark"),
    *("src/turbopump/cli", "src/turbopump/proxy"),
)
LINES_MAX: Final = 20
"""Lines of code of a module that needs neither."""
_LINE: Final = re.compile(r"^Tests: (?:tests/[\w/]+\.py(?:,\s+|$))+\Z", re.MULTILINE)


def mirrored(module: str) -> str:
    """The path of the tests of a module, both from the root of the project."""
    path = Path("tests/unit", module.removeprefix("src/turbopump/"))
    return path.with_name(f"test_{path.name}").as_posix()


def named(tree: ast.Module) -> list[str]:
    """The paths that the last line of a module's docstring names."""
    line = _LINE.search(ast.get_docstring(tree) or "")
    return re.findall(r"tests/[\w/]+\.py", line[0]) if line else []


def lines_of_code(tree: ast.Module) -> int:
    """Lines with statements, without docstrings; a def of several lines counts as one line."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines.add(node.lineno)
        elif isinstance(node, ast.stmt) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            assert node.end_lineno is not None
            lines.update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def complaint(module: str, tree: ast.Module, root: Path = ROOT) -> str:
    """Why the tests of a module cannot be found; "" if they can."""
    paths = named(tree)
    if (root / mirrored(module)).is_file():
        return f"{module}: `Tests:` beside {mirrored(module)}" if paths else ""
    if not paths and lines_of_code(tree) > LINES_MAX:
        return f"{module}: no {mirrored(module)}, and no line `Tests:` at the docstring's end"
    gone = [path for path in paths if not (root / path).is_file()]
    return f"{module}: names {gone}, which do not exist" if gone else ""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Path and tree of every module but `__init__` and `__main__`."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if not path.stem.startswith("__"):
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_tests_are_where_a_reader_looks_for_them() -> None:
    found = list(filter(None, (complaint(path, tree) for path, tree in modules())))
    assert not found, "\n".join(found)


def test_a_planted_module_without_tests_is_found(tmp_path: Path) -> None:
    code = "\n".join(f"v{number} = {number}" for number in range(LINES_MAX + 1))
    bare, where = ast.parse(code), "Tests: tests/here.py, tests/there.py"
    planted = ast.parse(f'"""Owns values.\n\n{where}\n"""\n{code}')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/here.py").touch()
    assert "and no line `Tests:`" in complaint("net/wire/a.py", bare, tmp_path)
    assert complaint("net/wire/a.py", ast.parse("v = 1"), tmp_path) == ""
    assert "['tests/there.py']" in complaint("net/wire/a.py", planted, tmp_path)
    (tmp_path / "tests/there.py").touch()
    assert complaint("net/wire/a.py", planted, tmp_path) == ""
    (tmp_path / "tests/unit/net/wire").mkdir(parents=True)
    (tmp_path / "tests/unit/net/wire/test_a.py").touch()
    assert complaint("net/wire/a.py", bare, tmp_path) == ""
    assert "beside tests/unit/net/wire/test_a.py" in complaint("net/wire/a.py", planted, tmp_path)

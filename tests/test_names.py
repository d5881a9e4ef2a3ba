"""One name for one thing: the loggers of modules. Public classes still share some names."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = "pyx", "engine", "net", "broker", "namesrv", "controller", "spark", "src/turbopump"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Paths and trees of the rooms' files, not through the links under src/turbopump."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            inside_link = any(parent.is_symlink() for parent in path.parents if parent != ROOT)
            if path.suffix == ".py" and not inside_link:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def loggers(tree: ast.Module) -> Iterator[str]:
    """Names at a module's top that are bound to what `logging.getLogger` gives."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets, value=ast.Call(func=ast.Attribute(attr="getLogger"))):
                yield from (ast.unparse(target) for target in targets)
            case ast.AnnAssign(target=name, value=ast.Call(func=ast.Attribute(attr="getLogger"))):
                yield ast.unparse(name)


def test_loggers_of_modules_are_called_logger() -> None:
    found = [(path, name) for path, tree in modules() for name in loggers(tree)]
    assert found
    assert [f"{path}: {name}" for path, name in found if name != "logger"] == []

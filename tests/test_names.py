"""Consistent names of public classes, and of the loggers of modules."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = "pyx", "engine", "net", "broker", "namesrv", "controller", "spark", "src/turbopump"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Paths and trees of the rooms' files, not through the links under src/turbopump."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            inside_link = any(parent.is_symlink() for parent in path.parents if parent != ROOT)
            if path.suffix in (".py", ".pyi") and not inside_link:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def shared(modules: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """A line for each name that several public classes have: the name, and where they are."""
    places = defaultdict(list)
    for path, tree in modules:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def test_public_classes_have_names_of_their_own() -> None:
    found = shared(modules())
    assert not found, "\n".join(found)


def test_a_planted_second_class_is_found() -> None:
    first, second = ast.parse("class Lane: ...\nclass _Own: ..."), ast.parse("class Lane: ...")
    planted = [("a.py", first), ("b.pyi", second), ("c.py", ast.parse("class _Own: ..."))]
    assert shared(planted) == ["Lane: a.py:1, b.pyi:1"]


RIDDLES: Final = frozenset(
    {"told", "said", "says", "hears", "reigns", "ground", "hasten", "elsewhere"}
    | {"attend", "foresee", "favour", "master_comes", "has_heard"}
)
"""Identifiers that do not name a thing: reports, responses, dependencies and threads have names."""
BAGS: Final = ("Ground", "Surroundings")
"""Ends of names of classes that are called dependencies (`Deps`) or a runtime."""


def riddles(tree: ast.Module) -> Iterator[str]:
    """Names that a module binds and that name nothing."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                if name in RIDDLES:
                    yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name in RIDDLES:
                    yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                if name in RIDDLES:
                    yield name
            case ast.ClassDef(name=name):
                if name.endswith(BAGS):
                    yield name


def test_identifiers_name_a_thing() -> None:
    planted = ast.parse("class LaneGround: ...\ndef f(hasten):\n    self.ground = hasten = 1")
    assert list(riddles(planted)) == ["LaneGround", "hasten", "ground", "hasten"]
    found = [f"{path}: {name}" for path, tree in modules() for name in riddles(tree)]
    assert not found, "\n".join(found)


def test_identifiers_of_tests_name_a_report() -> None:
    """A response, a result and a line of the log have names of their own in tests, too."""
    vague = {"told", "said", "says", "hears", "reigns"}
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("tests", "interop", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in riddles(ast.parse(path.read_text()))
        if name in vague
    ]
    assert not found, "\n".join(found)


def loggers(tree: ast.Module) -> Iterator[str]:
    """Names at a module's top that are bound to a result of `logging.getLogger`."""
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

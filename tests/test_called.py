"""No function that only tests call: code that the product does not use is removed, or lies with its
tests.

A name counts as called where any module of the rooms, of the native sources or of the benchmarks
reads it, so this does not find an unused function with the name of a called function.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.test_names import ROOT, modules

PROTOCOLS: Final = {
    "connection_made",
    "connection_lost",
    "data_received",
    "eof_received",
    "pause_writing",
    "resume_writing",
}
"""Methods that uvloop calls."""
DATA_SOURCE: Final = {
    "partitions", "streamReader", "streamWriter", "initialOffset", "getDefaultReadLimit",
    "latestOffset", "reportLatestOffset", "prepareForTriggerAvailableNow",
}  # fmt: skip
"""Methods that Spark calls."""
CLIENTS: Final = {
    "unsubscribe", "on_message", "assign", "change_invisible", "seek_to_begin", "seek_to_end",
    "seek_to_time", "poll", "send_oneway", "send_in_transaction", "recall", "turbopump_cluster",
}  # fmt: skip
"""Functions that users call: of the Python clients and the pytest fixture."""
COMMANDS: Final = "command", "callback"
"""Decorators that hand a function to the command line."""


def uncalled(modules: list[tuple[str, ast.Module]], others: str = "") -> Iterator[str]:
    """`path: name` of each function or method that none of the modules, nor the other texts,
    name anywhere but in its definition."""
    used, defined = set(re.findall(r"\w+", others)), []
    for path, tree in modules:
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    used.add(name)
                case ast.FunctionDef() | ast.AsyncFunctionDef() if path.endswith(".py"):
                    by = "".join(ast.unparse(one) for one in node.decorator_list)
                    if not any(word in by for word in COMMANDS):
                        defined.append((path, node.name))
    for path, name in defined:
        if name not in used and not name.startswith("__"):
            yield f"{path}: {name}"


def test_every_function_is_called() -> None:
    texts = (*(ROOT / "pyx").glob("*.pyx"), *(ROOT / "bench").rglob("*.py"))
    others = "".join(path.read_text() for path in texts)
    found = {one.rpartition(" ")[2]: one for one in uncalled(list(modules()), others)}
    known = PROTOCOLS | DATA_SOURCE | CLIENTS
    assert [found[name] for name in sorted(found.keys() - known)] == []


def test_a_planted_function_is_found() -> None:
    planted = ast.parse("def used(): ...\nclass A:\n def lost(self): used()\n def kept(self): ...")
    assert list(uncalled([("a.py", planted)], "cdef kept")) == ["a.py: lost"]

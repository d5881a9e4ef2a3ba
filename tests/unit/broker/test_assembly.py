"""The wiring of a broker under test: callbacks that are assigned later, bags of dependencies, and
the direction of calls in pop.

A constructor gets what it needs. A part that needs another part made after it has a true circle;
each is in `LATER` with its reason, so that no circle is added unnoticed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BROKER = Path(__file__).resolve().parents[3] / "broker"
BAGS_MAX: Final = 6
"""Classes of broker/ that only carry collaborators."""
_BAG_NAME = re.compile(r"(Context|Deps|Ground|Parts|Ports|Runtime|Surroundings)$")

_STORE = "the store's recovery needs the topics, and the native path needs the store"
_OFFSETS = "the native path and pop commit to the offsets, which notify them"
_ACTING = "the acting group asks other brokers as soon as it is made"
LATER: Final = {
    "assignment/routes.py on_change": "the assignments read the routes, which notify them",
    "ha/acting/acting_group.py on_online": _ACTING,
    "ha/control/membership.py on_lease": "the acting group is made after the membership",
    "ha/service.py lease": "the membership sets the role of the service, which asks it",
    "pop/acting_journal.py on_note": "the escape of pops reads the notes, which notify it",
    "pop/service.py others_first": "replication is made after the broker's other parts",
    "registration/registration.py on_master": "only a group without controllers asks for a master",
    "scheduled/timers.py on_ready": "the chain that steps the timers is made with the node's loop",
    "tables/consumers.py on_change": "the assignments read the consumers, which notify them",
    "tables/offsets.py collect": _OFFSETS,
    "tables/offsets.py collect_popped": _OFFSETS,
    "tables/offsets.py is_popped": _OFFSETS,
    "tables/offsets.py on_reset": _OFFSETS,
    "tables/topics.py on_change": "name servers are found when the port is open",
    "tables/topics.py on_made": _STORE,
    "tables/topics.py on_replace": _STORE,
    "traffic/role.py has_master": "replication is made after the broker's other parts",
    "traffic/role.py has_lease": "replication is made after the broker's other parts",
}
"""Callbacks of broker/ that are assigned after the constructor, each with its circle."""


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """All classes of the broker, with their files."""
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path, node


def placeholders(one: ast.ClassDef) -> Iterator[str]:
    """Attributes whose value is a lambda until another part assigns a function."""
    for node in ast.walk(one):
        is_later = isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Lambda)
        if is_later and isinstance(node.target, ast.Attribute):
            yield node.target.attr


def carries_parts(one: ast.ClassDef) -> bool:
    """Whether a class has no behaviour of its own, and collaborators as its members."""
    is_plain = any("dataclass" in ast.unparse(made) for made in one.decorator_list)
    is_plain |= any(ast.unparse(base) == "NamedTuple" for base in one.bases)
    if not is_plain or any(isinstance(node, ast.FunctionDef) for node in one.body):
        return False
    members = [ast.unparse(node.annotation) for node in one.body if isinstance(node, ast.AnnAssign)]
    functions = sum(member.startswith("Callable[") for member in members)
    return bool(_BAG_NAME.search(one.name)) or functions > 2


def test_callbacks_are_constructor_arguments() -> None:
    found = {
        f"{path.relative_to(BROKER)} {name}"
        for path, one in classes()
        for name in placeholders(one)
    }
    assert found <= set(LATER), f"pass it to the constructor: {sorted(found - set(LATER))}"
    assert found == set(LATER), f"no longer assigned later: {sorted(set(LATER) - found)}"


def test_few_classes_only_carry_parts() -> None:
    bags = sorted({one.name for _, one in classes() if carries_parts(one)})
    assert len(bags) <= BAGS_MAX, f"pass the parts themselves: {bags}"


def test_pop_calls_down_only() -> None:
    """Pop imports the rooms below it, and of the functions that it is given none stores, sends or
    answers anything: it writes by a MessageWriter (broker/traffic/put_message.py)."""
    below = {"config", "escape", "pop", "scheduled", "tables", "traffic"}
    for path in sorted((BROKER / "pop").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            room = module.removeprefix("turbopump.broker.").partition(".")[0]
            is_below = not module.startswith("turbopump.broker.") or room in below
            assert is_below, f"{path}: {module} is above pop"
    (deps,) = (one for _, one in classes() if one.name == "PopDeps")
    given = {
        ast.unparse(node.target)
        for node in deps.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Callable[")
    }
    assert given == {"call_soon", "delivered_ms", "pulls", "store_host", "wall_ms"}

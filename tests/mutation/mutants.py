"""The mutants of a module, and a seeded sample of them.

Owns the choice of operators and of places. It must never mutate text that no test judges: lines of
the log, annotations, and the message of an assert. Cosmic Ray finds the places and changes the
source; two operators that it lacks are here.
"""

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

Place = tuple[tuple[int, int], tuple[int, int]]

CALL: Final = ("atom_expr", "power")


class _NoneInPlace(Operator):
    """An operator that puts None into the place of an expression."""

    def mutate(self, node: Any, index: int) -> Any:
        """The statement with None for its value."""
        [old] = parso.parse("None").children[:1]
        at = node.children.index(self.value(node))
        old.prefix = node.children[at].get_first_leaf().prefix
        node.children[at] = old
        return node

    def mutation_positions(self, node: Any) -> Iterator[Place]:
        """The place of the value, if the statement is of the operator's kind."""
        if (value := self.value(node)) is not None:
            yield value.start_pos, value.end_pos

    def value(self, node: Any) -> Any:
        """The expression to replace, or None."""
        raise NotImplementedError

    @classmethod
    def examples(cls) -> tuple[()]:
        """Cosmic Ray's own tests alone read examples."""
        return ()


class ReturnNone(_NoneInPlace):
    """Returns None in place of a value."""

    def value(self, node: Any) -> Any:
        """The value of a return statement."""
        if node.type != "return_stmt":
            return None
        value = node.children[1]
        # For most callers False and None are the same.
        return None if value.get_code().strip() in ("None", "False") else value


class NoCall(_NoneInPlace):
    """Leaves out a call whose result is not used."""

    def value(self, node: Any) -> Any:
        """A call that is a statement."""
        if node.type != "simple_stmt" or node.children[0].type not in CALL:
            return None
        return node.children[0] if node.children[0].get_last_leaf() == ")" else None


# A family is as likely to be drawn as another, whatever the number of its places.
FAMILIES: Final = {
    "comparison": [
        *("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt"),
        *("Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is"),
    ],
    "boolean": ["AndWithOr", "OrWithAnd", "TrueWithFalse", "FalseWithTrue"],
    "not": ["AddNot", "Delete_Not"],
    "number": ["NumberReplacer"],
    "arithmetic": ["Add_Sub", "Sub_Add", "Mul_Add", "FloorDiv_Mul", "Mod_FloorDiv"],
    "loop": ["BreakWithContinue", "ContinueWithBreak", "ZeroIterationForLoop"],
    "exception": ["ExceptionReplacer"],
    "decorator": ["RemoveDecorator"],
    "return": [],
    "call": [],
}
PREFIXES: Final = {
    "comparison": "ReplaceComparisonOperator_",
    "boolean": "Replace",
    "arithmetic": "ReplaceBinaryOperator_",
}
RENAMED: Final = {
    "Delete_Not": "ReplaceUnaryOperator_Delete_Not",
    "BreakWithContinue": "ReplaceBreakWithContinue",
    "ContinueWithBreak": "ReplaceContinueWithBreak",
}
OWN: Final = {"return": ReturnNone, "call": NoCall}


class Mutant(NamedTuple):
    """A place and the operator that changes it."""

    module: str
    line: int
    family: str
    operator: str
    occurrence: int

    def source(self, root: Path) -> str:
        """The source of the module with the fault."""
        operator = _operators(self.family)[self.operator]
        code = mutate_code((root / self.module).read_text(), operator, self.occurrence)
        assert code is not None
        return str(code)


def _operators(family: str) -> dict[str, Operator]:
    if family in OWN:
        return {family: OWN[family]()}
    names = {name: RENAMED.get(name, PREFIXES.get(family, "") + name) for name in FAMILIES[family]}
    return {name: get_operator(f"core/{full}")() for name, full in names.items()}


def _unjudged(source: str) -> list[Place]:
    """Places of log lines, annotations, messages of asserts and decorators without an effect."""
    nodes: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in ("log", "logger"):
            nodes.append(node)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            nodes.append(node.msg)
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            nodes.append(node.returns)
        elif isinstance(node, ast.Name) and node.id in ("override", "final", "overload"):
            nodes.append(node)
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in nodes
    ]


def mutants_of(root: Path, module: str) -> list[Mutant]:
    """All mutants of a module, in the order of families and places."""
    source = (root / module).read_text()
    tree, unjudged = list(ast_nodes(get_ast(source))), _unjudged(source)
    found = []
    for family in FAMILIES:
        for name, operator in _operators(family).items():
            places = [place for node in tree for place in operator.mutation_positions(node)]
            for occurrence, (start, end) in enumerate(places):
                if not any(low <= end and start <= high for low, high in unjudged):
                    found.append(Mutant(module, start[0], family, name, occurrence))
    return found


def sample(root: Path, room: str, seed: int, number: int) -> list[Mutant]:
    """Mutants of a room, drawn family after family; a prefix of every larger sample."""
    rng = random.Random(f"{room} {seed}")
    paths = sorted((root / room).glob("*.py"))
    found = [one for path in paths for one in mutants_of(root, str(path.relative_to(root)))]
    rng.shuffle(found)
    families = [[one for one in found if one.family == family] for family in FAMILIES]
    drawn: list[Mutant] = []
    while len(drawn) < number and any(families):
        drawn += [family.pop() for family in families if family]
    return drawn[:number]

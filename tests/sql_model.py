"""A model of RocketMQ's filter expressions: trees with their text and a plain evaluator.

It follows RocketMQ's classes (ComparisonExpression, LogicExpression, UnaryExpression), the native
evaluator follows a program. A tree is `(kind, *parts)`.
"""

import math
import re
from typing import Any

Properties = dict[str, str]
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)
LONG = 1 << 63


class Thrown(Exception):
    """Java throws: the message is not matched."""


class Long(int):
    """A number that RocketMQ keeps as a Long."""


def text_of(tree: Any) -> str:
    """The expression, with brackets wherever they may stand."""
    match tree:
        case ("property", name):
            return str(name)
        case ("constant", None):
            return "NULL"
        case ("constant", bool(value)):
            return str(value).upper()
        case ("constant", str(value)):
            return "'" + value.replace("'", "''") + "'"
        case ("constant", value):
            return repr(value) if isinstance(value, float) else str(int(value))
        case ("not" | "negate" as kind, part):
            return f"{'NOT' if kind == 'not' else '-'} ({text_of(part)})"
        case ("null", part):
            return f"(({text_of(part)}) IS NULL)"
        case ("in", name, members, negates):
            listed = ", ".join(text_of(("constant", member)) for member in members)
            return f"({name} {'NOT ' * negates}IN ({listed}))"
        case ("search", operator, part, wanted, negates):
            text = text_of(("constant", wanted))
            return f"(({text_of(part)}) {'NOT ' * negates}{operator} {text})"
        case ("between", value, low, high, negates):
            between = f"{'NOT ' * negates}BETWEEN {text_of(low)} AND {text_of(high)}"
            return f"({text_of(value)} {between})"
        case (operator, left, right):
            return f"(({text_of(left)}) {operator} ({text_of(right)}))"
    raise AssertionError(tree)


def whole(text: str, limit: int) -> int:
    """Parse as Integer.valueOf or Long.valueOf do."""
    if not re.fullmatch(r"[+-]?\d+", text) or not -limit <= int(text) < limit:
        raise Thrown(text)
    return int(text)


def real(text: str) -> float:
    """Double.valueOf, without its hexadecimal form."""
    text = text.strip("".join(map(chr, range(33))))
    if re.fullmatch(r"[+-]?(NaN|Infinity)", text):
        return float(text)
    if not DECIMAL.fullmatch(text):
        raise Thrown(text)
    return float(text.rstrip("fFdD"))


def rank(value: float) -> tuple[bool, float, bool]:
    """Sort key of a number in the order of Double.compareTo."""
    return (True, 0, False) if math.isnan(value) else (False, value, math.copysign(1, value) > 0)


def order(left: Any, right: Any) -> int:
    """Result of ComparisonExpression.__compare."""
    if isinstance(left, str) and isinstance(right, bool):
        left = left.lower() == "true"
    if isinstance(left, bool) and isinstance(right, str):
        raise Thrown
    if isinstance(left, bool) != isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float) or type(left) is type(right) is str:
        left, right = (rank(real(x) if isinstance(x, str) else float(x)) for x in (left, right))
    if isinstance(left, str):
        left = whole(left, LONG if isinstance(right, Long) else 1 << 31)
    if isinstance(right, str):
        right = whole(right, LONG if isinstance(left, Long) else 1 << 31)
    return int(left > right) - int(left < right)


def equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return True if left is right else None if left is None else False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return order(left, right) == 0


def search(operator: str, value: Any, wanted: str, negates: bool) -> bool:
    if not wanted or not isinstance(value, str):
        return False
    found = {
        "CONTAINS": wanted in value,
        "STARTSWITH": value.startswith(wanted),
        "ENDSWITH": value.endswith(wanted),
    }
    return found[operator] != negates


def logic(decides: bool, left: Any, right: Any, properties: Properties) -> bool | None:
    """AND (False decides) and OR (True does); the right side is not looked at in vain."""
    one = condition(left, properties)
    if one is decides:
        return decides
    other = condition(right, properties)
    return decides if other is decides else None if one is None or other is None else not decides


def condition(tree: Any, properties: Properties) -> bool | None:
    value = evaluate(tree, properties)
    return False if isinstance(value, str) else value


def evaluate(tree: Any, properties: Properties) -> Any:
    """The value for a message. Raises Thrown."""
    match tree:
        case ("property", name):
            return properties.get(name)
        case ("constant", value):
            return value
        case ("not", part):
            value = condition(part, properties)
            return None if value is None else not value
        case ("negate", part):
            value = evaluate(part, properties)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return type(value)(-value) if is_number else None
        case ("null", part):
            return evaluate(part, properties) is None
        case ("in", name, members, negates):
            text = properties.get(name)
            return None if text is None else (text in members) != negates
        case ("search", operator, part, wanted, negates):
            value = evaluate(part, properties) if wanted else None
            return search(operator, value, wanted, negates)
        case ("between", value, low, high, negates):
            first, last = ("<", ">") if negates else (">=", "<=")
            return logic(negates, (first, value, low), (last, value, high), properties)
        case ("AND", left, right):
            return logic(False, left, right, properties)
        case ("OR", left, right):
            return logic(True, left, right, properties)
        case ("=", left, right):
            return equal(evaluate(left, properties), evaluate(right, properties))
        case (relation, left, right):
            one = evaluate(left, properties)
            other = None if one is None else evaluate(right, properties)
            if other is None:
                return None
            sign = order(one, other)
            return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[relation]
    raise AssertionError(tree)

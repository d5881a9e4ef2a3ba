"""Compiles a filter expression: the grammar of RocketMQ's SelectorParser, without recursion.

Owns the language of expressions and the ops for each. It must never evaluate an expression.

Operators wait on a stack until an operator of lower precedence follows (the shunting-yard
algorithm), so nesting costs memory, not stack, and the ops are written in the order of execution.
Expressions that RocketMQ refuses when it builds them are refused here; so are words after a
complete expression, which RocketMQ ignores.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from math import isinf
from typing import Final, NamedTuple

from turbopump.net.wire.names import cut_name
from turbopump.net.wire.sql import program as texts
from turbopump.net.wire.sql.program import Program
from turbopump.net.wire.sql.words import (
    END,
    NAME,
    REAL,
    TEXT,
    WHOLE,
    SqlError,
    SqlWord,
    split_words,
)
from turbopump.net.wire.subscription import EXPRESSION_MAX, SQL92, SubscriptionData
from turbopump.pyx import filter as kernel
from turbopump.pyx.filter import Filter

NESTING_MAX: Final = 1_000
"""Maximum number of operators and brackets that wait for their right side."""
SEARCHES_MAX: Final = 32
"""Maximum number of CONTAINS in an expression: each may search a long property for a third of a
ms."""

_RELATIONS: Final = {
    "<": kernel.LESS,
    "<=": kernel.LESS_EQUAL,
    ">": kernel.GREATER,
    ">=": kernel.GREATER_EQUAL,
}
# a < b is the same as b > a
_TURNED: Final = {
    kernel.LESS: kernel.GREATER,
    kernel.LESS_EQUAL: kernel.GREATER_EQUAL,
    kernel.GREATER: kernel.LESS,
    kernel.GREATER_EQUAL: kernel.LESS_EQUAL,
}
_SEARCHES: Final = {
    "CONTAINS": kernel.CONTAINS,
    "STARTSWITH": kernel.STARTS,
    "ENDSWITH": kernel.ENDS,
}
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_LONG_DIGITS: Final = 19
_OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = 1, 2, 3, 4, 5
_OPEN = 0  # a bracket, or a BETWEEN that waits for its AND
_LEVELS: Final = {
    "OR": _OR,
    "AND": _AND,
    "=": _EQUALITY,
    "<>": _EQUALITY,
    **dict.fromkeys(_RELATIONS, _COMPARISON),
}


class _Kind(Enum):
    """Kind of an operand, as RocketMQ distinguishes them; the grammar allows each in different
    places."""

    PROPERTY = "a property"
    CONSTANT = "a constant"
    TRUTH = "TRUE, FALSE or NULL"
    BOOLEAN = "a condition"
    NEGATED = "a negated value"


class _Expected(Enum):
    """Kind of the word that must follow: an operand, an operator, or the end."""

    OPERAND = "an operand"
    OPERATOR = "an operator"
    NOTHING = "nothing"


class _Operand(NamedTuple):
    """An entry of the operand stack.

    `start` is its first op; `value` the constant or the property's name. A single op that can
    compare natively has `compare`, the op for it, and `operand`, the bytes of its value.
    """

    kind: _Kind
    start: int
    value: str | int | float | bool | None = None
    compare: int = -1
    operand: bytes = b""

    @property
    def is_number(self) -> bool:
        """Whether the operand is a numeric constant."""
        return self.compare in (kernel.COMPARE_INT, kernel.COMPARE_LONG, kernel.COMPARE_DOUBLE)


class _Operator(NamedTuple):
    """An entry of the operator stack; `jump` is the number of an op whose jump target must be
    set to the end of the operator's result."""

    name: str
    level: int
    jump: int = -1
    second_jump: int = -1


def compile_filter(subscription: SubscriptionData) -> Filter:
    """Compile the filter of a subscription that is not by tags. Raises SqlError for a type but
    SQL92, and for an invalid expression."""
    if subscription.expression_type != SQL92:
        raise SqlError(f"There are no expressions of type {cut_name(subscription.expression_type)}")
    return compile_sql(subscription.sub_string)


def compile_sql(expression: str) -> Filter:
    """Compile an expression of SQL92; the last 64 results are cached and shared. Raises SqlError
    for an invalid or too long expression."""
    found = _compile_cached(expression)
    if isinstance(found, str):
        raise SqlError(found)
    return found


@lru_cache(maxsize=64)
def _compile_cached(expression: str) -> Filter | str:
    """Compile an expression, or return its error; errors are cached, too."""
    try:
        return Filter(program_of(expression))
    except SqlError as error:
        return error.reason


def program_of(expression: str) -> bytes:
    """Compile the program of an SQL92 expression in the form of csrc/filter.h. Raises SqlError."""
    if len(expression) > EXPRESSION_MAX:
        raise SqlError(f"It has over {EXPRESSION_MAX} characters")
    return _Compiler(expression).run()


class _Compiler:
    """The compiler of an expression; its methods read words, and raise SqlError where a word
    cannot stand."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._words: Iterator[SqlWord] = split_words(expression)
        self._word = next(self._words)
        self._program = Program()
        self._operands: list[_Operand] = []
        self._operators: list[_Operator] = []
        self._searches = 0

    def run(self) -> bytes:
        """Compile the whole expression and return the program."""
        expected = _Expected.OPERAND
        while expected is not _Expected.NOTHING:
            if expected is _Expected.OPERAND:
                self._read_prefixes()
                self._read_primary()
            expected = self._after_operand()
        self._apply_waiting(_OR)
        if self._operators:
            raise self._unexpected_word()
        self._as_condition(self._operands.pop())
        return self._program.to_bytes()

    def _take_word(self) -> SqlWord:
        """Return the current word and advance to the next."""
        word = self._word
        if word.kind != END:
            self._word = next(self._words)
        return word

    def _unexpected_word(self) -> SqlError:
        """Return the error for the current word, which cannot stand here."""
        word = self._word
        if word.kind == END:
            return SqlError("It ends too early")
        return SqlError(f"{word.text[:40]!r} at character {word.at + 1} cannot stand there")

    def _push_operator(self, operator: _Operator) -> None:
        """Push an operator that waits for its operand; raises SqlError beyond NESTING_MAX."""
        if len(self._operators) == NESTING_MAX:
            raise SqlError(f"It is nested over {NESTING_MAX} deep")
        self._operators.append(operator)

    def _read_prefixes(self) -> None:
        """Read the signs, brackets and NOT before an operand."""
        while self._word.kind in ("(", "+", "-", "NOT"):
            word = self._take_word()
            if word.kind != "+":
                self._push_operator(_Operator(word.kind, _OPEN if word.kind == "(" else _PREFIX))

    def _read_primary(self) -> None:
        """Read a literal or a property, and apply its prefixes."""
        word = self._word
        if word.kind == NAME:
            self._take_word()
            start = self._program.add(kernel.PROPERTY, name=word.text)
            self._operands.append(_Operand(_Kind.PROPERTY, start, word.text))
        elif word.kind in ("TRUE", "FALSE", "NULL"):
            self._take_word()
            truth = {"TRUE": True, "FALSE": False}.get(word.kind)
            op = kernel.NULL_VALUE if truth is None else kernel.BOOLEAN
            start = self._program.add(op, flag=int(truth is True))
            compare = -1 if truth is None else kernel.COMPARE_BOOLEAN
            operand = texts.int_operand(int(truth is True))
            self._operands.append(_Operand(_Kind.TRUTH, start, truth, compare, operand))
        elif word.kind in (TEXT, WHOLE, REAL):
            self._take_word()
            self._operands.append(self._write_constant(_Kind.CONSTANT, _literal_value(word)))
        else:
            raise self._unexpected_word()
        self._apply_prefixes()

    def _write_constant(self, kind: _Kind, value: str | int | float) -> _Operand:
        """Write the op that pushes a constant, and return its operand; an int is not negative."""
        if isinstance(value, str):
            operand, op, compare = self._program.text(value), kernel.TEXT, kernel.COMPARE_TEXT
        elif isinstance(value, float):
            operand, op, compare = texts.double_operand(value), kernel.DOUBLE, kernel.COMPARE_DOUBLE
        else:
            long = value > _INT_MAX
            operand, op = texts.int_operand(value), kernel.LONG if long else kernel.INT
            compare = kernel.COMPARE_LONG if long else kernel.COMPARE_INT
        start = self._program.add(op, operand=operand)
        return _Operand(kind, start, value, compare, operand)

    def _apply_prefixes(self) -> None:
        """Apply the waiting signs and NOT to the operand: they bind more than any other
        operator."""
        while self._operators and self._operators[-1].level == _PREFIX:
            name = self._operators.pop().name
            operand = self._operands.pop()
            if name == "NOT":
                self._as_condition(operand)
                self._program.add(kernel.NOT)
                self._operands.append(_Operand(_Kind.BOOLEAN, operand.start))
            elif operand.is_number:
                self._program.remove_ops_from(operand.start)
                self._operands.append(self._write_negated(operand))
            else:
                self._program.add(kernel.NEGATE)
                self._operands.append(_Operand(_Kind.NEGATED, operand.start))

    def _write_negated(self, number: _Operand) -> _Operand:
        """Write a negated number: it keeps its type, but RocketMQ no longer treats it as a
        constant."""
        assert isinstance(number.value, (int, float)), "it is a number"
        value = -number.value
        if number.compare == kernel.COMPARE_DOUBLE:
            return self._write_constant(_Kind.NEGATED, float(value))
        operand = texts.int_operand(int(value))
        op = kernel.LONG if number.compare == kernel.COMPARE_LONG else kernel.INT
        start = self._program.add(op, operand=operand)
        return _Operand(_Kind.NEGATED, start, value, number.compare, operand)

    def _after_operand(self) -> _Expected:
        """Apply the operators that wait for the operand, and read the next operator."""
        word, waiting = self._word, self._operators[-1].name if self._operators else ""
        if waiting in ("TO", "NOT TO"):
            self._write_between()
            return _Expected.OPERATOR
        if waiting in ("BETWEEN", "NOT BETWEEN"):
            self._between_low()
            return _Expected.OPERAND
        if word.kind in _LEVELS:
            self._take_word()
            self._push_binary(word.kind)
            return _Expected.OPERAND
        if word.kind == ")":
            self._close()
        elif word.kind == "IS":
            self._is_null()
        elif word.kind == END or self._is_last_comment():
            return _Expected.NOTHING
        else:
            return self._read_postfix()
        return _Expected.OPERATOR

    def _is_last_comment(self) -> bool:
        """Whether only a comment follows, in the last line; the lexer returns it as signs, as no
        line end follows it."""
        word = self._word
        if word.kind != "-" or not self._expression.startswith("--", word.at):
            return False
        self._word = SqlWord(END, "", word.at)
        return True

    def _close(self) -> None:
        """Read a closing bracket: apply all operators since the opening bracket."""
        self._apply_waiting(_OR)
        if not self._operators or self._operators[-1].name != "(":
            raise self._unexpected_word()
        self._take_word()
        self._operators.pop()
        self._apply_prefixes()

    def _read_postfix(self) -> _Expected:
        """Read an operator that may follow NOT: IN, BETWEEN, or a search."""
        negates = self._word.kind == "NOT"
        if negates:
            self._take_word()
        word = self._word
        if word.kind != "IN" and word.kind != "BETWEEN" and word.kind not in _SEARCHES:
            raise self._unexpected_word()
        self._take_word()
        self._apply_waiting(_COMPARISON)
        if word.kind == "BETWEEN":
            self._check_ordered(self._operands[-1])
            jump = self._program.add(kernel.IF_NULL)
            self._push_operator(_Operator("NOT BETWEEN" if negates else "BETWEEN", _OPEN, jump))
            return _Expected.OPERAND
        if word.kind == "IN":
            self._read_in_list(negates)
        else:
            self._read_search(_SEARCHES[word.kind], negates)
        return _Expected.OPERATOR

    def _apply_waiting(self, level: int) -> None:
        """Apply the waiting operators of at least this precedence."""
        while self._operators and self._operators[-1].level >= level:
            operator = self._operators.pop()
            right, left = self._operands.pop(), self._operands.pop()
            if operator.level <= _AND:
                self._as_condition(right)
                self._program.add(kernel.OR if operator.level == _OR else kernel.AND)
                self._program.set_jump_target(operator.jump)
            elif operator.level == _EQUALITY:
                self._write_equal(left, right)
                if operator.name == "<>":
                    self._program.add(kernel.NOT)
            else:
                self._write_comparison(_RELATIONS[operator.name], left, right, operator.jump)
            self._operands.append(_Operand(_Kind.BOOLEAN, left.start))

    def _push_binary(self, name: str) -> None:
        """Push a binary operator, whose left side is complete."""
        level = _LEVELS[name]
        self._apply_waiting(level)
        jump = -1
        if level <= _AND:
            left = self._operands.pop()
            self._as_condition(left)
            jump = self._program.add(kernel.IF_TRUE if level == _OR else kernel.IF_FALSE)
            self._operands.append(left)
        elif level == _COMPARISON:
            self._check_ordered(self._operands[-1])
            jump = self._program.add(kernel.IF_NULL)
        self._push_operator(_Operator(name, level, jump))

    def _as_condition(self, operand: _Operand) -> None:
        """Write the op that casts a property, the last operand, to a condition; raises SqlError
        for an operand that cannot be a condition (SelectorParser.asBooleanExpression)."""
        if operand.kind is _Kind.PROPERTY:
            self._program.add(kernel.CAST)
        elif operand.kind not in (_Kind.BOOLEAN, _Kind.TRUTH):
            raise SqlError(f"{_operand_text(operand)} is no condition")

    def _check_ordered(self, operand: _Operand) -> None:
        """Raises SqlError for an operand that an ordering comparison does not allow
        (ComparisonExpression.checkLessThanOperand)."""
        is_text = operand.kind is _Kind.CONSTANT and not operand.is_number
        if is_text or operand.kind in (_Kind.BOOLEAN, _Kind.TRUTH):
            raise SqlError(f"{_operand_text(operand)} cannot be compared by <, <=, > or >=")

    def _write_equal(self, left: _Operand, right: _Operand) -> None:
        """Write the ops of `left` = `right`, as one op for a property and a constant. Raises
        SqlError for NULL."""
        for one in (left, right):
            if one.kind is _Kind.TRUTH and one.value is None:
                raise SqlError("NULL cannot be compared; there is IS NULL")
        if left.kind is _Kind.TRUTH and right.kind is _Kind.CONSTANT:
            raise SqlError(f"{_operand_text(left)} cannot be compared with {_operand_text(right)}")
        if left.kind is _Kind.PROPERTY and right.compare >= 0:
            self._program.remove_ops_from(right.start)
            self._program.remove_ops_from(left.start)
            self._program.add(right.compare, name=str(left.value), operand=right.operand)
        else:
            self._program.add(kernel.COMPARE, flag=kernel.EQUAL)

    def _write_comparison(self, relation: int, left: _Operand, right: _Operand, jump: int) -> None:
        """Write a comparison; `jump` skips it if the left side is null, because the result is then
        null."""
        self._check_ordered(right)
        if left.kind is _Kind.PROPERTY and right.is_number:
            self._compare_number(relation, left, right, left.start)
        elif right.kind is _Kind.PROPERTY and left.is_number:
            self._compare_number(_TURNED[relation], right, left, left.start)
        else:
            self._program.add(kernel.COMPARE, flag=relation)
            self._program.set_jump_target(jump)

    def _compare_number(
        self, relation: int, name: _Operand, number: _Operand, start: int | None
    ) -> None:
        """Write one op for a comparison with a number; it replaces all ops from `start`, if
        given."""
        if start is not None:
            self._program.remove_ops_from(max(name.start, number.start))
            self._program.remove_ops_from(start)
        self._program.add(
            number.compare, flag=relation, name=str(name.value), operand=number.operand
        )

    def _is_null(self) -> None:
        """Read IS NULL or IS NOT NULL and write its ops."""
        self._take_word()
        self._apply_waiting(_EQUALITY)
        negates = self._word.kind == "NOT"
        if negates:
            self._take_word()
        if self._word.kind != "NULL":
            raise self._unexpected_word()
        self._take_word()
        operand = self._operands.pop()
        self._program.add(kernel.IS_NULL)
        if negates:
            self._program.add(kernel.NOT)
        self._operands.append(_Operand(_Kind.BOOLEAN, operand.start))

    def _read_string(self) -> str:
        """Read a text literal and return its value."""
        if self._word.kind != TEXT:
            raise self._unexpected_word()
        return str(_literal_value(self._take_word()))

    def _read_in_list(self, negates: bool) -> None:
        """Read the list of IN and write its op; `negates`: NOT IN."""
        operand = self._operands.pop()
        if operand.kind is not _Kind.PROPERTY:
            raise SqlError(f"IN asks for a property, not for {_operand_text(operand)}")
        members: set[bytes] = set()
        wanted = "("
        while self._word.kind == wanted:
            self._take_word()
            members.add(texts.encode_text(self._read_string()))
            wanted = ","
        if not members or self._word.kind != ")":
            raise self._unexpected_word()
        self._take_word()
        self._program.remove_ops_from(operand.start)
        self._program.add_list(members, flag=int(negates), name=str(operand.value))
        self._operands.append(_Operand(_Kind.BOOLEAN, operand.start))

    def _read_search(self, op: int, negates: bool) -> None:
        """Read the text of CONTAINS, STARTSWITH or ENDSWITH, which `op` names, and write the op;
        `negates`: after NOT."""
        operand, wanted = self._operands.pop(), self._read_string()
        self._searches += op == kernel.CONTAINS
        if self._searches > SEARCHES_MAX:
            raise SqlError(f"It searches over {SEARCHES_MAX} times")
        if wanted:
            self._program.add(op, flag=int(negates), operand=self._program.text(wanted))
        else:  # with and without NOT: RocketMQ does not read the operand for an empty text
            self._program.remove_ops_from(operand.start)
            self._program.add(kernel.BOOLEAN)
        self._operands.append(_Operand(_Kind.BOOLEAN, operand.start))

    def _between_low(self) -> None:
        """Write the op for a complete lower bound; AND must follow."""
        if self._word.kind != "AND":
            raise self._unexpected_word()
        self._take_word()
        between = self._operators.pop()
        self._check_ordered(self._operands[-1])
        negates = between.name == "NOT BETWEEN"
        jump = self._program.add(kernel.BETWEEN_LOW, flag=int(negates))
        self._push_operator(_Operator("NOT TO" if negates else "TO", _OPEN, between.jump, jump))

    def _write_between(self) -> None:
        """Write the op for a complete upper bound (ComparisonExpression.createBetween)."""
        operator = self._operators.pop()
        high, low, value = self._operands.pop(), self._operands.pop(), self._operands.pop()
        self._check_ordered(high)
        program, negates = self._program, operator.name == "NOT TO"
        if not negates and _is_above(low, high):
            raise SqlError(f"BETWEEN asks for two values in order, not {low.value}, {high.value}")
        if value.kind is _Kind.PROPERTY and low.is_number and high.is_number:
            program.remove_ops_from(high.start)
            program.remove_ops_from(low.start)
            program.remove_ops_from(value.start)
            first, second = kernel.GREATER_EQUAL, kernel.LESS_EQUAL
            if negates:
                first, second = kernel.LESS, kernel.GREATER
            self._compare_number(first, value, low, None)
            jump = program.add(kernel.IF_TRUE if negates else kernel.IF_FALSE)
            self._compare_number(second, value, high, None)
            program.add(kernel.OR if negates else kernel.AND)
            program.set_jump_target(jump)
        else:
            program.add(kernel.BETWEEN_HIGH, flag=int(negates))
            program.set_jump_target(operator.jump)
            program.set_jump_target(operator.second_jump)
        self._operands.append(_Operand(_Kind.BOOLEAN, value.start))


def _is_above(low: _Operand, high: _Operand) -> bool:
    """Whether two constants are out of order; RocketMQ does not treat a negated number as a
    constant."""
    if low.kind is not _Kind.CONSTANT or high.kind is not _Kind.CONSTANT:
        return False
    one, other = low.value, high.value
    if isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        return False
    if isinstance(one, float) or isinstance(other, float):
        return float(one) > float(other)
    return one > other


def _literal_value(word: SqlWord) -> str | int | float:
    """Convert a literal to its value. Raises SqlError for a number outside Java's range."""
    if word.kind == TEXT:
        return word.text[1:-1].replace("''", "'")
    if word.kind == WHOLE:
        digits = word.text.rstrip("lL")
        if len(digits) <= _LONG_DIGITS and int(digits) <= _LONG_MAX:
            return int(digits)
        raise SqlError(f"{word.text[:40]} is beyond {_LONG_MAX}")
    value = float(word.text)
    if value == 0 or isinf(value):  # ConstantExpression.createFloat: Double.MIN_VALUE is above 0
        raise SqlError(f"{word.text[:40]} is not within a double's range")
    return value


def _operand_text(operand: _Operand) -> str:
    """Describe an operand in the text of an error."""
    if operand.value is None:
        return operand.kind.value if operand.kind is not _Kind.TRUTH else "NULL"
    return repr(operand.value)[:40]

"""The lexer of filter expressions.

Owns the words of RocketMQ's SelectorParser: reserved words in any case, names, literals, comments.
It must never know the grammar.

Tests: tests/unit/net/wire/sql/test_compiler.py
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

WORDS_MAX: Final = 2_048
"""Maximum words of an expression; reading that many takes some ms."""

RESERVED: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")
) | {"CONTAINS", "STARTSWITH", "ENDSWITH"}
"""Reserved words, in upper case; an expression may write them in any case."""
NAME, TEXT, WHOLE, REAL, END = "name", "text", "whole", "real", "end"
"""Kinds of words: a property's name, a text in quotes, an integer, a decimal number, and the end of
the expression."""

_WORD = re.compile(
    r"""(?P<space>[ \t\n\r\f]+)
    |(?P<comment>/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<real>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<whole>0[lL]?|[1-9][0-9]*[lL]?)
    |(?P<text>'[^']*(?:''[^']*)*')
    |(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)
    |(?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)
_LINE_END = re.compile(r"[\n\r]")


class SqlError(ValueError):
    """An invalid expression; `reason` is a sentence. RocketMQ's text comes first, because operators
    search for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Invalid MessageSelector. {reason}")
        self.reason = reason


class SqlWord(NamedTuple):
    """A word: `kind` is NAME, TEXT, WHOLE, REAL, END, a reserved word in upper case, or a sign;
    `text` is the word as written, with its quotes; `at` is the index of its first character."""

    kind: str
    text: str
    at: int


def split_words(expression: str) -> Iterator[SqlWord]:
    """Yield the words of an expression in order, without comments, and END. Raises SqlError where
    no word can begin, and beyond WORDS_MAX.

    `--` begins a comment if a line end follows; else it is two signs (SelectorParser.jj).
    """
    at, size, count = 0, len(expression), 0
    last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
    while at < size:
        if at < last_line_end and expression.startswith("--", at):
            found = _LINE_END.search(expression, at)
            assert found is not None, "a line end follows"
            at = found.end()
            continue
        match = _WORD.match(expression, at)
        if match is None:
            raise SqlError(f"No word can begin at character {at + 1}: {expression[at : at + 20]!r}")
        kind, text = match.lastgroup, match.group()
        assert kind is not None, "every alternative has a name"
        if kind not in ("space", "comment"):
            count += 1
            if count > WORDS_MAX:
                raise SqlError(f"It has over {WORDS_MAX} words")
            if kind == "sign":
                kind = text
            elif kind == NAME and text.upper() in RESERVED:
                kind = text.upper()
            yield SqlWord(kind, text, at)
        at = match.end()
    yield SqlWord(END, "", size)

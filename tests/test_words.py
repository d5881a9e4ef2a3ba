"""Plain English: words and turns that documents and source do not use, each with a plain one.

The subject of a sentence is a thing of the system (the broker, the loop, a client), the verb is a
standard one, and a process is "it". The list grows; no refused word is left in the repository.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS: Final = (
    *("csrc", "pyx", "engine", "net", "broker", "namesrv", "controller", "spark"),
    *("src/turbopump", "bench", "interop", "tests"),
)
LISTS: Final = Path(__file__), ROOT / "tests/prose/counting.py"
"""Files that list the words which others do not use."""
CYTHON: Final = ".pyx", ".pxd", ".pyi"
BRACES: Final = ".c", ".h", ".go", ".java", ".rs"

REFUSED: Final = {
    r"nobody": "no client, no replica, no member; or the passive",
    r"anybody": "any client, any peer",
    r"everybody": "every broker, all members",
    r"somebody": "a client, a peer, an operator",
    r"whoever": "the broker that, each client that",
    r"whomever": "the broker that, each client that",
    r"told": "notified, sent, reported, logged, distinguished",
    r"(?:is|are|was|were|be|been|being) asked for it": "is queried, receives the request",
    r"(?:he|him|his|himself|she|her|herself)": "it, its: a process; they: a person",
    r"who waits": "pending sends, held pulls, the waiting client",
    r"whom": "the broker that, the clients to which",
    r"(?:he|it|they|those|all|next|only|out|to|for|of|by|from|that|so) who": "the broker that",
    r"goodbye": "the closing alert, the last message",
}
"""Regular expressions of whole words, without regard to case: what to write instead."""

_PATTERN: Final = re.compile(
    "|".join(rf"(?P<w{n}>\b{word}\b)" for n, word in enumerate(REFUSED)), re.IGNORECASE
)
_ANY: Final = re.compile("|".join(rf"\b{word}\b" for word in REFUSED))
"""The same of a text in small letters: ten times as fast, and most files have none."""


def documents() -> Iterator[Path]:
    """Pages that people read: at the top and below docs/."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def refused(text: str) -> list[str]:
    """A line for each refused word outside of `code`: its number, the word, and what to write."""
    found = []
    text = re.sub(r"`[^`\n]*`", lambda code: "`" * len(code[0]), text)
    for match in _PATTERN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        hint = list(REFUSED.values())[int(str(match.lastgroup)[1:])]
        found.append(f"{line}: {match[0]!r}: {hint}")
    return found


def sources() -> Iterator[Path]:
    """Source files of the rooms, not through the links under src/turbopump, without built files."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            within = path.relative_to(ROOT)
            built = {"target", ".cache"} & set(within.parts)
            if path.suffix not in (".py", *CYTHON, *BRACES) or built or path in LISTS:
                continue
            if not any((ROOT / parent).is_symlink() for parent in within.parents):
                yield path


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment, docstring and other string of Python or Cython.

    Names are not prose: of code, between the braces of an f-string, and strings without blanks.
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING and " " not in token.string:
            continue  # a name of data
        if token.type == tokenize.STRING and "f" in token.string.partition('"')[0].lower():
            yield token.start[0], re.sub(r"\{[^{}]*\}", "{}", token.string)
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def prose_in_braces(source: str) -> Iterator[tuple[int, str]]:
    """Same as `prose`, for C, Go or Java."""
    for match in re.finditer(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', source, re.DOTALL):
        yield source.count("\n", 0, match.start()) + 1, match[0]


def test_source_is_plain_english() -> None:
    wrong = []
    for path in sources():
        source = path.read_text()
        if not _ANY.search(source.lower()):
            continue
        texts = (prose_in_braces if path.suffix in BRACES else prose)(source)
        wrong += [
            f"{path.relative_to(ROOT)}:{line} and on: {found}"
            for line, text in texts
            for found in refused(text)
        ]
    assert not wrong, "\n".join(wrong)


def test_documents_are_plain_english() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in documents()
        for line in refused(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_planted_words_of_source_are_found() -> None:
    source = 'nobody = 1  # nobody waits\nprint("is told", f"of {nobody}", "nobody")\n'
    assert [len(refused(text)) for _, text in prose(source)] == [1, 1, 0]
    source = 'int nobody; /* nobody\n * waits */ // "whoever"\nlog("is told");\n'
    found = [(line, len(refused(text))) for line, text in prose_in_braces(source)]
    assert found == [(1, 1), (2, 1), (3, 1)]


def test_each_kind_of_source_is_read() -> None:
    assert {path.suffix for path in sources()} == {".py", *CYTHON, *BRACES}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The sends that nobody waits for: who waits is told.", 3),
        ("Whoever leads\nand he who does not", 2),
        ("The other shell of theirs, he-man and here", 1),
        ("No client waits; the pending sends are returned, the header is read.", 0),
    ],
)
def test_planted_words_are_found(text: str, count: int) -> None:
    assert len(refused(text)) == count

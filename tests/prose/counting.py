"""Counting habits of prose in comments, docstrings and texts.

Owns the list of habits. It must never judge: the ratchet compares densities.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = (
    *("csrc", "pyx", "engine", "net", "broker", "namesrv", "controller", "spark"),
    *("src/turbopump", "bench", "interop", "tests", "docs"),
)
_PYTHON: Final = ".py", ".pyx", ".pxd", ".pyi"
_BRACES: Final = ".c", ".h", ".go", ".java", ".rs"
_VERBS: Final = (
    "is was were are has have had cannot can may must do does did comes? came goes went becomes? "
    "became belongs? lies lay waits? needs? takes? follows? makes? says? said fits? fails? failed "
    "remains? stays? stands? counts? exists? happens? happened"
)
_SUBJECTS: Final = (
    "it they a an the this that no each one such both another some others? all we clients? "
    "brokers? replicas? messages?"
)
_AFTER_WHAT: Final = "|".join(f"{_VERBS} {_SUBJECTS}".split())
HABITS: Final = {
    "clause with 'what'": rf"\b[Ww]hat\s+(?:{_AFTER_WHAT})\b",
    "sentence that begins with 'What'": r"(?:^|[.!?:\"]\s+|\"\"\")What\b",
    "'so many', 'so long'": (
        r"\b[Ss]o (?:many|long|often|much|far|few|soon|old|high|large|small|seldom)\b"
    ),
    "'behind' for after": r"\bbehind\b",
    "a machine that says, tells or hears": r"\b(?:says?|said|tells?|told|hears?|heard)\b",
    "'one that', 'those of'": (
        r"\b(?:[Oo]ne that|[Tt]he one|[Oo]f one|[Tt]hose (?:of|that|with|which)|another one|"
        r"no other one)\b"
    ),
    "'is none'": r"\b(?:is|are|be) none\b",
    "'is over'": r"\b(?:is|are|was|were) over\b",
    "'from there on'": r"\bfrom (?:there|then|here|now|it|which) on\b",
    "'anew', 'any more'": r"\b(?:anew|any ?more|no more)\b",
}
"""Regular expressions; each has a plain form that names the thing."""
FRAGMENT: Final = "docstring that begins with a fragment"
_BAD_STARTS: Final = (
    "What Of So Up It They Its Those These Where Who Whose Whom Why That How One By Behind Beyond "
    "Between From For As Because With In At Under Another Nothing None"
)
_FRAGMENTS: Final = frozenset(_BAD_STARTS.split())
_PATTERNS: Final = {name: re.compile(habit, re.MULTILINE) for name, habit in HABITS.items()}
_PROSE: Final = re.compile(
    r"""\"{3}.*?\"{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.DOTALL
)
"""Strings and comments of Python and Cython: ten times as fast as reading tokens."""
_COMMENTS: Final = re.compile(r"/\*.*?\*/|(?:[ \t]*//[^\n]*\n)+", re.DOTALL)
_FIRST_WORD: Final = re.compile(r'^\s*"{3}(\w+)', re.MULTILINE)
Hits = Counter[str]


def texts_of(path: Path) -> Iterator[str]:
    """Comments, docstrings and texts with blanks of a source file; all of a page of documents."""
    source = path.read_text()
    if path.suffix == ".md":
        yield source
    elif path.suffix in _BRACES:
        for match in _COMMENTS.finditer(source):
            yield re.sub(r"\n[ \t]*(?:\*|//)", "\n", match[0])
    else:
        for match in _PROSE.finditer(source):
            if match[0].startswith("#") or (" " in match[0] and len(match[0]) > 12):
                yield match[0]


def fragments_in(source: str) -> int:
    """Docstrings of Python that begin with a word that begins no sentence."""
    return sum(match[1] in _FRAGMENTS for match in _FIRST_WORD.finditer(source))


def hits_of(path: Path) -> tuple[int, Hits]:
    """Words of a file's prose, and how often each habit occurs in it."""
    texts = list(texts_of(path))
    hits = Hits()
    for text in texts:
        for name, pattern in _PATTERNS.items():
            hits[name] += sum(1 for _ in pattern.finditer(text))
    if path.suffix == ".py":
        hits[FRAGMENT] = fragments_in(path.read_text())
    return sum(len(text.split()) for text in texts), hits


def files() -> Iterator[Path]:
    """Source and documents of the rooms, not through the links under src/turbopump."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            within = path.relative_to(ROOT)
            built = {"target", ".cache", "node_modules"} & set(within.parts)
            if path.suffix not in (*_PYTHON, *_BRACES, ".md") or built or not path.is_file():
                continue
            if within.parent != Path("tests/prose") and not any(
                (ROOT / parent).is_symlink() for parent in within.parents
            ):
                yield path


def densities() -> dict[str, dict[str, float]]:
    """Folder to habit to hits in 1,000 words, rounded up; habits without hits are left out."""
    words: Counter[str] = Counter()
    hits: defaultdict[str, Hits] = defaultdict(Hits)
    for path in files():
        folder = path.parent.relative_to(ROOT).as_posix()
        count, found = hits_of(path)
        words[folder] += count
        hits[folder].update(found)
    return {
        folder: {
            name: -(-count * 100_000 // max(words[folder], 1)) / 100
            for name, count in sorted(found.items())
            if count
        }
        for folder, found in sorted(hits.items())
        if found.total()
    }

"""References in source, tests and documents exist: ids, pages, their sections and anchors.

A reader who finds "R11" or "store.md 12" finds the target inside the repository: ids in
docs/INVARIANTS.md, pages in docs/ and docs/reference/.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from turbopump.broker.config.known_keys import IDLE_KEYS as BROKER_KEYS
from turbopump.controller.config import IDLE_KEYS as CONTROLLER_KEYS
from turbopump.namesrv.config import IDLE_KEYS as NAMESRV_KEYS

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "docs" / "INVARIANTS.md"
PLACES = (ROOT, *(ROOT / "docs" / name for name in ("", "reference", "internals", "results")))
"""Folders of pages that are named without their folder."""
TEXTS = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md", ".txt", ".toml", ".in", ""}
NO_PAGE = "nowhere" + ".md"
"""A planted name, in two pieces: no document has it."""
OWN = "tests/test_documents.py"
"""Name of this file, whose planted examples are wrong on purpose."""

# Behind a quote it is data: a client's id "I0", the table "S1" of numpy.
ID = re.compile(
    r"(?<![\w\"'.`=<>*&$%+(@/])\(?\b([EPXCVRSIFK]\d{1,2}|Raft-\d+)"
    r"(?![\w\"'`(=@\]]|\.\d)"
)
LAW = re.compile(r"\b[Ll]aws? (\d+)")
RULE = re.compile(r"\bKIP-320, rule (\d+)")
SECTIONS = r"(\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?\b(?!\.))*)"
PAGE = re.compile(rf"([\w./-]*\w\.md)(?:#([\w-]+))?\b(?:\]\([^)]*\))?(?:,? section)? ?{SECTIONS}?")
HEADING = re.compile(r"^(#+) (?:(\d+(?:\.\d+)?)\.? )?(.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
NAMED = re.compile(r"([\w./-]*\w\.md)\)?,\s+\"([^\"]{1,80})\"")
"""A section by its name: store.md, "Damage". The name may go on in the next line."""
SOURCE = re.compile(r"(?<![\w/.-])((?:[a-z_]\w*/)+\w+\.(?:py|pyx|c))\b")
"""A source file with its folder."""
WORDS_MAX = {"docs/TESTING.md": 2_500, "docs/PERFORMANCE.md": 2_500}
"""Pages that are read once, and reports of today: results of single runs are in docs/results."""
CHANGELOG_LINES_MAX = 60
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
"""A line of a snippet that begins with # is no heading."""


def files() -> Iterator[tuple[str, str]]:
    """Names and texts of all tracked files that people write."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in TEXTS or name.startswith("tests/golden/") or name == OWN:
            continue
        if path.is_file() and not path.is_symlink():
            yield name, path.read_text(errors="replace")


@cache
def tails() -> frozenset[str]:
    """Each file with each of the folders above it, in the form in which texts name them."""
    parts = [Path("turbopump", name).parts for name in [OWN, *dict(files())]]
    return frozenset("/".join(one[at:]) for one in parts for at in range(len(one)))


@cache
def known_ids() -> frozenset[str]:
    """First cells of tables: rules in docs/INVARIANTS.md, vectors in two pages of the reference."""
    vectors = (ROOT / "docs" / "reference" / name for name in ("ha.md", "controller.md"))
    pages = [RULES, *vectors]
    cell = re.compile(r"^\| (law \d+|Raft-\d+|[RSIFKEPXCV]\d+) \|", re.MULTILINE)
    found = [name for page in pages for name in cell.findall(page.read_text())]
    assert len(found) == len(set(found)), "an id is defined twice"
    return frozenset(found)


@cache
def headings(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """(numbers of sections, anchors as GitHub makes them) of a page."""
    numbers, anchors = set(), set()
    for _, number, title in HEADING.findall(FENCE.sub("", path.read_text())):
        if number:
            numbers.add(number)
        anchor = anchor_of(f"{number} {title}")
        assert anchor not in anchors, f"{path.name}: two sections are named {title!r}"
        anchors.add(anchor)
    return frozenset(numbers), frozenset(anchors)


def anchor_of(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = " ".join(title.lower().split())
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def unknown_ids(text: str) -> list[str]:
    """Ids in the text that nothing defines."""
    named = [*ID.findall(text), *(f"law {number}" for number in LAW.findall(text))]
    wrong = [name for name in named if name not in known_ids()]
    return wrong + [f"KIP-320, rule {n}" for n in RULE.findall(text) if n not in "1234"]


def page_of(name: str, folder: Path) -> Path | None:
    """The page that a text in this folder means by the name."""
    for place in (folder, *PLACES):
        path = (place / name).resolve()
        if path.is_file():
            return path
    return None


def dangling(text: str, folder: Path) -> list[str]:
    """Pages and sections that the text names and that are not there."""
    wrong = []
    for found in PAGE.finditer(text):
        name, anchor, sections = found.groups()
        path = page_of(name, folder)
        if path is None:
            wrong.append(name)
            continue
        numbers, anchors = headings(path)
        wrong += [f"{name}#{anchor}"] if anchor and anchor not in anchors else []
        for number in re.findall(r"\d+(?:\.\d+)?", sections or ""):
            if number not in numbers:
                wrong.append(f"{name} {number}")
    for name, section in NAMED.findall(text):
        path = page_of(name, folder)
        if path is not None and anchor_of(section) not in headings(path)[1]:
            wrong.append(f"{name}, {' '.join(section.split())}")
    return wrong


def no_files(text: str) -> list[str]:
    """Source files that the text names and that are not there."""
    return [name for name in SOURCE.findall(text) if name not in tails()]


def broken_links(text: str, page: Path) -> list[str]:
    """Links of a page that lead to no file, or to no section of a page."""
    wrong = []
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target if target else page
        if not path.exists():
            wrong.append(target)
        elif anchor and path.suffix == ".md" and anchor not in headings(path)[1]:
            wrong.append(f"{target}#{anchor}")
    return wrong


def test_every_id_is_defined() -> None:
    wrong = [f"{name}: {word}" for name, text in files() for word in unknown_ids(text)]
    assert not wrong, f"neither docs/INVARIANTS.md nor docs/reference defines {wrong}"


def test_every_page_and_section_exists() -> None:
    wrong = [
        f"{name}: {word}" for name, text in files() for word in dangling(text, (ROOT / name).parent)
    ]
    assert not wrong, f"named, and not there: {wrong}"


def test_every_source_file_that_is_named_exists() -> None:
    """Every source file that a text names exists, except in tests, which have made-up names."""
    wrong = [
        f"{name}: {word}"
        for name, text in files()
        if not name.startswith("tests/")
        for word in no_files(text)
    ]
    assert not wrong, f"named, and not there: {wrong}"


def test_sections_of_a_page_that_name_each_other_exist() -> None:
    for name, text in files():
        if name.endswith(".md") and name != "docs/reference/README.md":
            numbers, _ = headings(ROOT / name)
            alone = re.sub(rf"{PAGE.pattern}", "", text)
            named = re.findall(r"\(?\b(?:see )?section (\d+)\b", alone)
            wrong = [number for number in named if number not in numbers]
            assert not wrong, f"{name} has no section {wrong}"


def test_links_lead_somewhere() -> None:
    wrong = [
        f"{name}: {link}"
        for name, text in files()
        if name.endswith(".md")
        for link in broken_links(text, ROOT / name)
    ]
    assert not wrong, f"links that lead nowhere: {wrong}"


def test_the_check_of_each_rule_exists() -> None:
    for path in re.findall(r"`((?:tests|interop|bench)[\w./]*)`", RULES.read_text()):
        assert (ROOT / path).exists(), f"docs/INVARIANTS.md names {path}"


def test_the_reference_is_named_by_its_page() -> None:
    """Without its page a reader would have to search seven of them."""
    for name, text in files():
        if not name.startswith("docs/"):
            found = re.search(r"\bof the reference\b|\bthe reference's\b", text)
            assert not found, f"{name}: which page of {found and found[0]!r}?"


@pytest.mark.parametrize("page", WORDS_MAX)
def test_a_report_of_today_is_short(page: str) -> None:
    words = len((ROOT / page).read_text().split())
    assert words <= WORDS_MAX[page], f"{page}: move results of single runs to docs/results"


def test_the_changelog_is_short() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert len(lines) <= CHANGELOG_LINES_MAX, "a mend of code that no release had gets no line"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("as R11 says, and I12 (S1-S3, K1 to K6), law 6, Raft-10", []),
        ("a bug like R99 (I21)", ["R99", "I21"]),
        ("one digit: R1", ["R1"]),
        ("Raft-11, Law 11, KIP-320, rule 5", ["Raft-11", "law 11", "KIP-320, rule 5"]),
        ("F41-F43", ["F41", "F43"]),
        ('ids == ["I0", "R9"]', []),
    ],
)
def test_planted_ids_are_found(text: str, wrong: list[str]) -> None:
    assert unknown_ids(text) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(store.md 12), remoting.md 9.4 and docs/FORMATS.md", []),
        ("store.md section 3, messages.md 0.6, 1.1", []),
        (f"see {NO_PAGE} section 8", [NO_PAGE]),
        ("store.md 99 and store.md 6.9", ["store.md 99", "store.md 6.9"]),
        ("messages.md 5, 55", ["messages.md 55"]),
        ("[ha.md 7](docs/reference/ha.md#nowhere)", ["docs/reference/ha.md#nowhere"]),
        ('docs/internals/store.md, "Damage", and "not a section"', []),
        ('as docs/internals/store.md,\n"One\nwriter" says', []),
        (
            'docs/internals/store.md, "No such\nsection"',
            ["docs/internals/store.md, No such section"],
        ),
        (
            f'[{NO_PAGE}](docs/FORMATS.md), [store.md](docs/internals/store.md), "Nowhere"',
            [NO_PAGE, "docs/internals/store.md, Nowhere"],
        ),
        ("docs/ARCHITECTURE.md, section 6", ["docs/ARCHITECTURE.md 6"]),
    ],
)
def test_planted_pages_are_found(text: str, wrong: list[str]) -> None:
    assert dangling(text, ROOT) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("net/wire/codes.py, ha/sockets.py and turbopump/net/wire/codes.py (csrc/lane.c)", []),
        ("see broker/nowhere.py, wire/sockets.py", ["broker/nowhere.py", "wire/sockets.py"]),
        ("nowhere.py and sys/epoll.h", []),
    ],
)
def test_planted_files_are_found(text: str, wrong: list[str]) -> None:
    assert no_files(text) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](docs/internals/store.md#damage), [b](#more), [c](https://example.org/#x)", []),
        (
            "[a](docs/internals/store.md#no-such-section)",
            ["docs/internals/store.md#no-such-section"],
        ),
        ("[a](docs/nowhere), [b](#nowhere)", ["docs/nowhere", "#nowhere"]),
    ],
)
def test_planted_links_are_found(text: str, wrong: list[str]) -> None:
    assert broken_links(text, ROOT / "README.md") == wrong


def test_a_comment_of_a_snippet_is_no_section(tmp_path: Path) -> None:
    page = tmp_path / NO_PAGE
    page.write_text("# Page\n\n```\n# comment\n```\n\n## Part `of` it\n")
    assert headings(page) == (frozenset(), {"page", "part-of-it"})


def test_paths_that_a_contributor_is_sent_to_exist() -> None:
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        for path in re.findall(r"`([\w.]+/[\w./]*|\.ci/run)`", (ROOT / name).read_text()):
            assert (ROOT / path).exists(), f"{name} names {path}"


def test_each_refused_key_is_documented() -> None:
    text = (ROOT / "docs" / "CONFIGURATION.md").read_text()
    known = [*BROKER_KEYS.items(), *NAMESRV_KEYS.items(), *CONTROLLER_KEYS.items()]
    wrong = {key for key, one in known if one.harm and f"`{key}`" not in text}
    assert not wrong, f"docs/CONFIGURATION.md does not say that these are refused: {sorted(wrong)}"


def test_make_alone_prints_every_target() -> None:
    # make runs these tests, and a make inside another make prints its folder.
    alone = ["make", "--no-print-directory"]
    made = subprocess.run(alone, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert [line.split()[1] for line in made.splitlines()] == phony[1].split()


def test_nothing_is_installed_from_the_index_by_our_name() -> None:
    """The name is not registered there: a stranger could register it, and our advice install it."""
    wrong = re.compile(r"pip install [^\n`]*?(?<![\w./-])turbopump(?:\[|['\"`) \n])")
    assert wrong.search("pip install 'turbopump" + "[spark]'")
    found = [name for name, text in files() if name != OWN and wrong.search(text)]
    assert not found, found

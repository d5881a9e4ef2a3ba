"""Every command and option that the README names exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from tests import readme

from turbopump.cli.app import app
from turbopump.spark.commands.parsers import PARSERS

ROOT = typer.main.get_command(app)
GROUP = typer.core.TyperGroup


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the remaining words."""
    command = ROOT
    while isinstance(command, GROUP) and words:
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            break
        command, words = found, words[1:]
    return command, words


def spelled_out(text: str) -> Iterator[list[str]]:
    """Commands with alternatives written out: `inspect log|queue PATH [--json]` is two commands."""
    words = text.replace("[", "").replace("]", "").removeprefix("turbopump ").split()
    choices = [
        word.split("|") if re.fullmatch("[a-z]+(?:\\|[a-z]+)+", word) else [word] for word in words
    ]
    for first in choices[0]:
        for second in choices[1] if len(choices) > 1 else [""]:
            yield [first, second, *(word for options in choices[2:] for word in options)]


def lines() -> Iterator[str]:
    """The `turbopump ...` lines of the shell blocks."""
    for block in [*readme.blocks(""), *readme.blocks("sh")]:
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("turbopump "):
                yield line


@pytest.mark.parametrize("text", readme.commands())
def test_commands_of_the_table(text: str) -> None:
    assert text.startswith("turbopump ")
    for words in spelled_out(text):
        command, rest = resolved(words)
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        if "NAME" in rest or isinstance(command, GROUP):
            assert words[0] == "admin" or rest == ["..."], words
            continue
        used = {word for word in rest if word.startswith("-")}
        assert used <= known, f"{' '.join(words)}: {used - known} is no option"


def test_the_table_has_every_command() -> None:
    documented = {words[0] for text in readme.commands() for words in spelled_out(text)}
    assert isinstance(ROOT, GROUP)
    assert set(ROOT.list_commands(click.Context(ROOT))) <= documented


def test_the_admin_commands_are_all_listed() -> None:
    row = next(line for line in readme.TEXT.splitlines() if "`turbopump admin NAME" in line)
    listed = set(re.findall("`((?:[a-z]\\w+ ?){5,})`", row)[0].split())
    admin, _ = resolved(["admin"])
    assert isinstance(admin, GROUP)
    assert listed == set(admin.list_commands(click.Context(admin)))


def test_the_admin_commands_have_their_lines_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "OPERATIONS.md").read_text()
    table = page.partition("## Commands of `turbopump admin`")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    admin, _ = resolved(["admin"])
    assert isinstance(admin, GROUP)
    context = click.Context(admin)
    commands = [(name, admin.get_command(context, name)) for name in admin.list_commands(context)]
    first = {name: (one.help or "").partition("\n\n")[0] for name, one in commands if one}
    assert rows == [(name, " ".join(text.split())) for name, text in first.items()]


@pytest.mark.parametrize("line", list(lines()))
def test_lines_of_the_shell_blocks(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command, rest = resolved(words)
    if words[0] == "analyze":
        PARSERS[words[1]]().parse_args(rest)
    else:
        command.make_context(words[0], rest)


def test_words_of_make_run_are_options_of_up() -> None:
    command, _ = resolved(["up"])
    known = {name for one in command.params for name in one.opts}
    given = re.findall('ARGS="([^"]+)"', readme.TEXT)
    used = {word for text in given for word in text.split() if word.startswith("-")}
    assert {"--data", "-c"} <= used <= known

"""The README as its tests read it: code blocks by language, and the rows of its tables."""

import re
from pathlib import Path

TEXT = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Code of all fenced blocks of a language; "" for blocks without one."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [code for found, code in fenced if found == language]


def commands() -> list[str]:
    """The first cells of the table of commands, each command by itself."""
    table = TEXT[TEXT.index("| command |") :].partition("\n\n")[0].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", row)[1] for row in table]
    return [
        command.replace("\\|", "|") for cell in cells for command in re.findall("`([^`]+)`", cell)
    ]

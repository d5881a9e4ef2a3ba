"""Text files that a user names.

Owns what is said of one that cannot be read. Called by the commands that take a properties file.
"""

from pathlib import Path

from turbopump.cli.errors import UserError, sentence_of


def read_text(path: Path) -> str:
    """The text of a file; raises UserError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UserError(sentence_of(error)) from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None

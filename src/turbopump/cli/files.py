"""Text files that a user names.

Owns the errors and warnings about their form.
"""

import logging
from pathlib import Path

from turbopump.cli.errors import UserError, sentence_of


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file; raises UserError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UserError(sentence_of(error)) from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None


def properties_text(path: Path) -> str:
    """Return the unchanged text of a properties file; logs a warning for each duplicate key.

    Raises UserError for a file that cannot be read and for JSON: each JSON line would be an unknown
    key, and the node would start with defaults.
    """
    from turbopump.net.wire.java_properties import (
        PropertiesError,
        escape_unprintable,
        parse_properties,
    )

    text = read_text(path)
    if text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        raise UserError(f"{path} is JSON: a properties file, KEY=VALUE in each line, is expected")
    seen: dict[str, int] = {}
    try:
        found = parse_properties(text)
    except PropertiesError as error:
        raise UserError(f"{path}: {error}") from None
    for item in found:
        if item.key in seen:
            logging.getLogger(__name__).warning(
                "%s: %s is given twice, in lines %d and %d: the last one counts",
                *(path, escape_unprintable(item.key), seen[item.key], item.line),
            )
        seen[item.key] = item.line
    return text

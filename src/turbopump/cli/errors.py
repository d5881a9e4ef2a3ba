"""How a command fails: one clear sentence on stderr and an exit code, never a traceback.

Owns the two kinds of failure and the translation of all exceptions into them. Called by
app.py around every command, and by commands that find bad input themselves.
"""

import errno
import os
import sys
from typing import NoReturn

BAD_INPUT = 2
"""Something the user gave or configured cannot be used: arguments, files, folders, ports."""

FAILED = 1
"""The command was understood, but what it asked for did not happen."""


class UserError(Exception):
    """Bad input, in one sentence; exit code 2."""

    exit_code = BAD_INPUT


class CommandFailed(UserError):
    """What was asked for did not happen, in one sentence; exit code 1."""

    exit_code = FAILED


def sentence_of(error: OSError) -> str:
    """What the operating system refused, for a person: with the file, without the number."""
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ENOSPC:
        what = "the disk is full"
    return f"{error.filename}: {what}" if error.filename else what


def failure_of(error: OSError) -> UserError:
    """The failure that a refusal of the operating system is: a file with a name was given by the
    user, anything else (a full standard output) was not."""
    kind = UserError if error.filename else CommandFailed
    return kind(sentence_of(error))


def fail(error: UserError) -> NoReturn:
    """Say it and end the process."""
    print(f"turbopump: {error}", file=sys.stderr)
    raise SystemExit(error.exit_code)

"""Failures of commands: one clear sentence on stderr and an exit code, never a traceback.

Owns the two kinds of failure and the translation of all exceptions into them.

Tests: tests/unit/cli/test_run_command.py
"""

import errno
import os
import sys
from typing import NoReturn

BAD_INPUT = 2
"""Exit code for unusable input or configuration: arguments, files, folders, ports."""

FAILED = 1
"""Exit code for a valid command whose work failed."""


class UserError(Exception):
    """Bad input, in one sentence; exit code 2."""

    exit_code = BAD_INPUT


class CommandFailed(UserError):
    """Failure of a valid command, in one sentence; exit code 1."""

    exit_code = FAILED


def sentence_of(error: OSError) -> str:
    """Return the operating system's text for an error, with the file before it and without the
    number."""
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ENOSPC:
        what = "the disk is full"
    return f"{error.filename}: {what}" if error.filename else what


def failure_of(error: OSError) -> UserError:
    """Return (not raise) the failure for an error of the operating system.

    An error with a file name is bad input, because the user named the file; any other (a full
    standard output) is not.
    """
    kind = UserError if error.filename else CommandFailed
    return kind(sentence_of(error))


def exit_with_error(error: UserError) -> NoReturn:
    """Print the error to stderr and end the process with its exit code (SystemExit)."""
    print(f"turbopump: {error}", file=sys.stderr)
    raise SystemExit(error.exit_code)

"""One Python target under atheris: `python -m tests.fuzz.worker TARGET libFuzzer arguments`.

Called by the runner, in a process of its own, because libFuzzer ends its process.
"""

import logging
import sys

import atheris

with atheris.instrument_imports(include=["turbopump", "json", "tests.fuzz.models"]):
    from tests.fuzz import targets


def main() -> None:
    """Run until libFuzzer's arguments say that it is enough, or something is found."""
    name, *arguments = sys.argv[1:]
    # What the parsers log about their input would hide what libFuzzer prints.
    logging.disable(logging.CRITICAL)
    atheris.Setup([sys.argv[0], *arguments], lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()

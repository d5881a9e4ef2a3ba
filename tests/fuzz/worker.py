"""A Python target under atheris:

`python -m tests.fuzz.worker TARGET libFuzzer arguments`. It has a process of its own, because
libFuzzer ends its process.
"""

import logging
import sys

import atheris

with atheris.instrument_imports(include=["turbopump", "json", "tests.fuzz.models"]):
    from tests.fuzz import targets


def main() -> None:
    """Run until the limits in libFuzzer's arguments, or until a finding."""
    name, *arguments = sys.argv[1:]
    # Log lines of the parsers would hide libFuzzer's output.
    logging.disable(logging.CRITICAL)
    atheris.Setup([sys.argv[0], *arguments], lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()

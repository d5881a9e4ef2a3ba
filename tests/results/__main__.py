"""`python -m tests.results`: print results of single runs, of a page or of both.

    python -m tests.results testing --grep SUITE=store
    python -m tests.results performance --section pull

The results are the lines of docs/results. Exit code 1 if no result was found.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.results.reading import FOLDER, PAGES, chosen, read, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the chosen results; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("page", nargs="?", choices=PAGES, help="by default both")
    parser.add_argument("--grep", default="", metavar="TEXT", help="text in any field")
    parser.add_argument("--section", default="", metavar="TEXT", help="text in the heading")
    options = parser.parse_args(arguments)
    pages = [options.page] if options.page else PAGES
    results = [result for page in pages for result in read(FOLDER / f"{page}.jsonl")]
    found = chosen(results, options.grep, options.section)
    for result in found:
        print(shown(result) + "\n")
    print(f"{len(found)} of {len(results)} results")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())

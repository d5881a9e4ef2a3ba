"""The command line: `turbopump` and `python -m turbopump`.

Owns nothing but the way in. It must never import a node, a client or rich at import time: every
command starts in a fraction of a second because it imports what it needs when it runs.
"""


def main() -> None:
    """Run the command of this process's arguments; ends the process with its exit code."""
    from turbopump.cli.app import run

    run()

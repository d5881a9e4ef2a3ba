"""`turbopump top`: the current state of the broker groups, and every election as it happens.

Owns the options, the interval and the form: a screen on a terminal, lines for a pipe.
net/client/admin/group_watch.py queries the nodes, top_view.py has the layout.
"""

from collections import deque
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Annotated, Final, Protocol, Self

import typer

from turbopump.cli.admin.controller import controller_addresses
from turbopump.cli.errors import CommandFailed
from turbopump.cli.options import DEFAULT_NAMESRV, Json, Namesrv, split_addresses
from turbopump.cli.output import print_json, print_lines
from turbopump.cli.run_command import client_options, failing_clearly, run

if TYPE_CHECKING:
    import asyncio

    from rich.live import Live

    from turbopump.net.client.admin.group_view import Change, Sample
    from turbopump.net.client.admin.group_watch import GroupWatch

ANSWER_TIMEOUT_MS: Final = 1000
"""Timeout of each node's response: a stopped node must not delay the view of the others."""

CHANGES_SHOWN: Final = 12
"""Lines of history on the screen: as many as fit a small terminal beside two groups of three."""


class _Output(Protocol):
    """Shows samples of the broker groups: as JSON, lines, or a screen."""

    def show(self, sample: "Sample", changes: "list[Change]") -> None:
        """Show a sample and its differences from the previous sample."""


def top(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    controllers: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--controllerAddress",
            metavar="HOST:PORT",
            help="Controllers, separated by ';'. Default: those in the brokers' configuration.",
        ),
    ] = None,
    broker_name: Annotated[
        str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="One group only.")
    ] = None,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", min=0.05, max=3600, metavar="SECONDS", help="Seconds between refreshes."
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one sample and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the broker groups: roles, epochs, SyncStateSets, lag, and elections as they happen.

    A screen on a terminal, lines elsewhere, one JSON document for each sample with --json.
    """
    import asyncio
    import signal

    from turbopump.net.client.admin.client import Admin

    addresses, options = split_addresses(namesrv), client_options()
    quorum = [] if controllers is None else controller_addresses(controllers)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        admin = Admin(addresses, timeout_ms=ANSWER_TIMEOUT_MS, client_options=options)
        async with admin:
            watch = admin.watch(quorum, broker_name)
            with ExitStack() as stack:
                if once:
                    await _show_once(watch, _line_output(as_json))
                else:
                    shown = _choose_output(as_json, f"Turbopump top: {';'.join(addresses)}", stack)
                    await _show_repeatedly(watch, shown, stop, interval_s)

    run(failing_clearly(main()))


async def _show_once(watch: "GroupWatch", shown: _Output) -> None:
    """Show one sample. Raises CommandFailed if no node answered."""
    sample = await watch.sample()
    if sample.nobody_answered:
        raise CommandFailed("; ".join(sample.errors))
    shown.show(sample, [])


async def _show_repeatedly(
    watch: "GroupWatch", shown: _Output, stop: "asyncio.Event", interval_s: float
) -> None:
    """Show a sample and its changes every `interval_s` until `stop` is set."""
    import asyncio

    from turbopump.net.client.admin.group_view import find_changes, with_known_roles

    loop, before = asyncio.get_running_loop(), None
    while not stop.is_set():
        due_s = loop.time() + interval_s
        sample = await watch.sample()
        shown.show(sample, [] if before is None else find_changes(before, sample))
        before = with_known_roles(before, sample)
        try:
            async with asyncio.timeout_at(due_s):
                await stop.wait()
        except TimeoutError:
            continue


def _line_output(as_json: bool) -> _Output:
    return JsonLines() if as_json else PlainLines()


def _choose_output(as_json: bool, title: str, stack: ExitStack) -> _Output:
    """The output for stdout: JSON, a screen on a terminal (ended by `stack`), or lines."""
    import sys

    if as_json or not sys.stdout.isatty():
        return _line_output(as_json)
    return stack.enter_context(Screen(title))


class JsonLines:
    """Output for programs: a JSON document for each sample, with its changes."""

    def show(self, sample: "Sample", changes: "list[Change]") -> None:
        """Print the sample and its changes as one line of JSON."""
        rows = [change.to_json() for change in changes]
        print_json({**sample.to_json(), "changes": rows})


class PlainLines:
    """Output for files and pipes: a line for each controller, broker and change."""

    def show(self, sample: "Sample", changes: "list[Change]") -> None:
        """Print the changes, then all controllers, brokers and groups of the sample, and flush."""
        from turbopump.cli.top_view import change_lines, sample_lines

        print_lines([*change_lines(changes), *sample_lines(sample)], flush=True)


class Screen(AbstractContextManager["Screen"]):
    """Output for people: the whole terminal, which is restored at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._changes: deque[Change] = deque(maxlen=CHANGES_SHOWN)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(screen=True, auto_refresh=False)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._live is not None
        self._live.stop()

    def show(self, sample: "Sample", changes: "list[Change]") -> None:
        """Draw the sample and the latest CHANGES_SHOWN changes; only inside of the `with` block."""
        from turbopump.cli.top_view import build_screen

        assert self._live is not None
        self._changes.extend(changes)
        width = self._live.console.width
        shown = build_screen(self._title, sample, list(self._changes), width)
        self._live.update(shown, refresh=True)

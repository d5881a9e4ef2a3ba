"""`turbopump inspect log|queue|index|epochs PATH`: print the contents of a store's files by line.

Owns the commands. It must never change, lock or create a file: the store may belong to a running
broker.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbopump.cli.errors import FAILED
from turbopump.cli.options import Json

if TYPE_CHECKING:
    from turbopump.cli.inspect.files import QueueFile
    from turbopump.engine.snapshot.inspect import IndexHead
    from turbopump.pyx.region import Region

app = typer.Typer(
    help="Read the files of a store, RocketMQ's included: one line for each record, unit or entry. "
    "Exit code 1 if there is damage.",
    no_args_is_help=True,
)

StorePath = Annotated[
    Path, typer.Argument(help="A store, one of its folders, or one file.", show_default=False)
]
EpochsPath = Annotated[Path, typer.Argument(help="A store, or an epoch file.", show_default=False)]
OtherPath = Annotated[
    Path | None, typer.Argument(help="A second one, to compare.", show_default=False)
]
EpochFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--epoch-file",
        metavar="FILE",
        help="Epoch file of the first store, if moved by storePathEpochFile; repeat for the "
        "second.",
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", help="Only records of this topic; may be repeated."),
]
Start = Annotated[
    int,
    typer.Option(
        "--offset",
        min=0,
        metavar="N",
        help="Begin with the record at this log offset, or with the next one.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=0, metavar="N", help="Number of records to print."),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots", min=1, help="Hash slots of the index files, if they cannot be derived."
    ),
]

SLOTS_A_WRITE = 10_000  # slots of an index file's line written in one call


@app.command()
def log(
    path: StorePath,
    topics: Topics = None,
    log_offset: Start = 0,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Print the records of a commit log, its fillers and the end of each file."""
    from turbopump.cli.inspect.files import log_files, open_readonly
    from turbopump.cli.inspect.lines import log_line
    from turbopump.engine.snapshot.inspect import LogRecord, walk_log

    printer = _Printer(as_json)
    wanted = {topic.encode() for topic in topics or ()}
    files = printer.with_bytes(log_files(path), lambda file: file)
    for line in walk_log(files, open_readonly, log_offset):
        if isinstance(line, LogRecord):
            if wanted and line.record.topic not in wanted:
                continue
            if limit == 0:
                break
            limit = None if limit is None else limit - 1
        printer.write_line(log_line(line))
    printer.flush_and_exit()


@app.command()
def queue(path: StorePath, as_json: Json = False) -> None:
    """Print the units of consume queues, batch consume queues and their extensions."""
    from turbopump.cli.inspect.files import open_readonly, queue_files
    from turbopump.cli.inspect.lines import queue_line
    from turbopump.engine.snapshot import inspect as engine

    walkers = {
        "consumequeue": engine.walk_queue,
        "batchconsumequeue": engine.walk_batch_queue,
        "consumequeue_ext": engine.walk_queue_extension,
    }
    printer = _Printer(as_json)
    for one in printer.with_bytes(queue_files(path), lambda one: one.file):
        with open_readonly(one.file.path) as region:
            for line in walkers[one.kind](one.file, region):
                printer.write_line(queue_line(line, one.topic, one.queue_id))
            if one.kind != "consumequeue_ext":
                printer.write_line(_queue_file_line(one, region.size))
    printer.flush_and_exit()


def _queue_file_line(one: "QueueFile", length: int) -> dict[str, Any]:
    return {
        "t": "queueFile",
        "kind": one.kind,
        "topic": one.topic,
        "queue": one.queue_id,
        "name": one.file.name,
        "length": length,
    }


@app.command()
def index(path: StorePath, as_json: Json = False, slots: Slots = None) -> None:
    """Print the header, the slots in use and the entries of index files."""
    from turbopump.cli.inspect.files import index_files, open_readonly
    from turbopump.cli.inspect.lines import damage_line, index_entry_line, index_head_line
    from turbopump.engine.snapshot import inspect as engine

    printer = _Printer(as_json)
    for file in printer.with_bytes(index_files(path), lambda file: file):
        with open_readonly(file.path) as region:
            try:
                head = engine.read_index_head(region, slots)
            except ValueError as error:
                printer.write_line(damage_line(engine.Deviation(file.path, 0, str(error))))
                continue
            members = index_head_line(file.name, region.size, head)
            printer.index_head(members, region, head)
            for line in engine.walk_index_entries(file, region, head):
                printer.write_line(index_entry_line(file.name, line))
    printer.flush_and_exit()


@app.command()
def epochs(
    path: EpochsPath,
    other: OtherPath = None,
    diff: Annotated[bool, typer.Option("--diff", help="Only the differences.")] = False,
    epoch_files: EpochFiles = None,
    as_json: Json = False,
) -> None:
    """Print which master wrote which part of a log; of two logs also their differences and the
    offset at which they part."""
    from itertools import zip_longest

    from turbopump.cli.errors import UserError
    from turbopump.cli.inspect import epochs as inspect_epochs

    printer = _Printer(as_json)
    logs = []
    stores = [path, other] if other else [path]
    if len(epoch_files or ()) > len(stores):
        raise UserError("more epoch files than stores were named")
    for one, moved in zip_longest(stores, epoch_files or ()):
        found = inspect_epochs.read(one, moved)
        if isinstance(found, inspect_epochs.Labelled):
            logs.append(found)
        else:
            printer.write_line(found)
    for log in [] if diff else logs:
        for line in inspect_epochs.epoch_lines(log):
            printer.write_line(line)
    if len(logs) == 2:
        for line in inspect_epochs.epoch_differences(*logs):
            printer.write_line(line)
    printer.flush_and_exit()


class _Printer:
    """Writes lines as JSON or text and remembers whether there was damage."""

    def __init__(self, as_json: bool) -> None:
        from turbopump.cli.inspect.lines import text_of

        self._text: Callable[[dict[str, Any]], str] = json.dumps if as_json else text_of
        self._json = as_json
        self._damaged = False

    def with_bytes(self, ones: list[Any], file_of: Callable[[Any], Any]) -> list[Any]:
        """Return the elements of `ones` whose file (`file_of`) has bytes; an empty file, which
        cannot be mapped, is printed as damage."""
        from turbopump.cli.inspect.lines import damage_line
        from turbopump.engine.snapshot.inspect import Deviation

        kept = []
        for one in ones:
            file = file_of(one)
            if Path(file.path).stat().st_size:
                kept.append(one)
            else:
                self.write_line(damage_line(Deviation(file.path, 0, "the file is empty")))
        return kept

    def write_line(self, members: dict[str, Any]) -> None:
        """Write `members` as a line to stdout; a line about damage lets `flush_and_exit` fail."""
        self._damaged = self._damaged or members["t"] == "damage"
        sys.stdout.write(self._text(members) + "\n")

    def index_head(self, members: dict[str, Any], region: "Region", head: "IndexHead") -> None:
        """Write the line of an index file, its slots in pieces, because there may be millions."""
        from turbopump.engine.snapshot.inspect import walk_slots

        if not self._json:
            self.write_line(members)
            return
        sys.stdout.write(json.dumps(members)[:-1] + ', "slots": {')
        pieces: list[str] = []
        separator = ""
        for slot, entry in walk_slots(region, head):
            pieces.append(f'"{slot}": {entry}')
            if len(pieces) == SLOTS_A_WRITE:
                sys.stdout.write(separator + ", ".join(pieces))
                pieces, separator = [], ", "
        sys.stdout.write((separator if pieces else "") + ", ".join(pieces) + "}}\n")

    def flush_and_exit(self) -> None:
        """Flush stdout; ends the command with exit code 1 if damage was written."""
        sys.stdout.flush()
        if self._damaged:
            raise typer.Exit(FAILED)

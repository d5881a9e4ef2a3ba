"""`turbopump repair STORE`: removes or skips damage in the middle of a log.

Owns the command. It must never cut the log or give up a record unless its log offset was given, nor
work on a store that a broker uses.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbopump.cli.errors import FAILED, UserError
from turbopump.cli.files import read_text
from turbopump.cli.options import INT64_MAX, Json
from turbopump.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from turbopump.broker.config.config import BrokerConfig
    from turbopump.engine.log.damage import Damage
    from turbopump.engine.store import Store


def repair(
    store: Annotated[Path, typer.Argument(help="A stopped broker's store.", show_default=False)],
    config_file: Annotated[
        Path | None,
        typer.Option("-c", "--configFile", metavar="FILE", help="The broker's properties."),
    ] = None,
    give_up: Annotated[
        int | None,
        typer.Option(
            "--give-up",
            min=0,
            max=INT64_MAX,
            metavar="OFFSET",
            help="Give up the damaged record at this log offset; keep all others.",
        ),
    ] = None,
    cut_at: Annotated[
        int | None,
        typer.Option(
            "--cut-log-at",
            min=0,
            max=INT64_MAX,
            metavar="OFFSET",
            help="Cut the log at the damaged record: removes it and ALL messages after it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every record of a store's log, and remove or skip damage in it.

    Exit code 1 while damage makes a broker refuse writes.
    """
    if give_up is not None and cut_at is not None:
        raise UserError("--give-up and --cut-log-at are two different ways out: choose one")
    opened, now_ms = _open_store(store, config_file)
    try:
        places = opened.check_log()
        named = give_up if give_up is not None else cut_at
        if named is not None and named not in [place.log_offset for place in places]:
            raise UserError(f"{store}: no record is damaged at log offset {named}")
        _repair_damage(opened, give_up, cut_at, now_ms)
        _print_damages(opened.damages, opened.max_log_offset, as_json)
        refused = opened.damage is not None
    finally:
        opened.close(now_ms)
    if refused:
        raise typer.Exit(FAILED)


def _repair_damage(opened: "Store", give_up: int | None, cut_at: int | None, now_ms: int) -> None:
    """Give up the damage at `give_up`, and cut the log at `cut_at` (log offsets; None: do not).
    Raises UserError."""
    from turbopump.engine.types import LogOffset, StoreError

    try:
        if give_up is not None:
            opened.skip_damaged_record(LogOffset(give_up))
        if cut_at is not None:
            opened.truncate(LogOffset(cut_at), now_ms)
    except StoreError as error:
        raise UserError(str(error)) from None


def _open_store(path: Path, config_file: Path | None) -> "tuple[Store, int]":
    """(the opened store at `path`, current time in epoch ms). Raises UserError."""
    import time

    from turbopump.cli.inspect.files import log_files
    from turbopump.engine.disk.flush import InlineDisk
    from turbopump.engine.disk.real_files import RealFiles
    from turbopump.engine.store import Store
    from turbopump.engine.types import StoreError

    root = Path(log_files(path)[0].path).parent.parent
    config = _load_config(config_file)
    now_ms = time.time_ns() // 1_000_000
    try:
        files = RealFiles()
        settings = dataclasses.replace(config.store, root=str(root))
        opened = Store.open(
            files,
            settings,
            InlineDisk(),
            now_ms,
            delay_levels_ms=config.delay_levels_ms,
            is_batch_topic=_batch_topics(files, settings.root).__contains__,
        )
    except StoreError as error:
        raise UserError(str(error)) from None
    return opened, now_ms


def _load_config(path: Path | None) -> "BrokerConfig":
    from turbopump.broker.config.config import load_config
    from turbopump.net.wire.java_properties import PropertiesError

    try:
        config, _warnings = load_config("" if path is None else read_text(path), str(path or ""))
    except PropertiesError as error:
        raise UserError(f"{path}: {error}") from None
    return config


def _batch_topics(files: Any, root: str) -> set[str]:
    """Names of the topics with queue.type=BatchCQ, from the store's topics.json. Raises
    UserError."""
    from turbopump.broker.tables.topics import FILE_NAME
    from turbopump.engine.disk.config_files import ConfigFiles
    from turbopump.net.wire.bodies import BadBody
    from turbopump.net.wire.topics import TopicConfigs

    folder = f"{root}/config"
    saved = ConfigFiles(files, folder).load(FILE_NAME)
    if saved is None:
        return set()
    try:
        topics = TopicConfigs.from_json(saved).topic_config_table
    except BadBody as error:
        raise UserError(f"{folder}/{FILE_NAME}: {error}") from None
    return {name for name, one in topics.items() if one.attributes.get("queue.type") == "BatchCQ"}


def _print_damages(places: "list[Damage]", log_end: int, as_json: bool) -> None:
    if as_json:
        print_json({"logEnd": log_end, "damages": [dataclasses.asdict(one) for one in places]})
        return
    lines = [
        f"log offset {one.log_offset} to {one.end}: {one}{', given up' if one.given_up else ''}"
        for one in places
    ]
    print_lines([*lines, f"The log ends at {log_end}, {len(places)} places are damaged."])

"""Layout of `turbopump top`: tables for a screen, lines for a file.

Owns the columns and the units. It must never send a request to a node; rich is imported only for a
screen.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from turbopump.cli.output import duration_text, format_columns, local_time

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

    from turbopump.net.client.admin.group_view import (
        BrokerView,
        Change,
        ControllerView,
        GroupView,
        LagView,
        PopView,
        Sample,
        WaitingView,
    )

CONTROLLER_COLUMNS: Final = ("controller", "address", "role", "term", "age", "error")
"""Headings of the controllers' table."""
BROKER_COLUMNS: Final = (
    "id",
    "address",
    "role",
    "epoch",
    "set",
    "alive",
    "end",
    "confirm",
    "lag",
    "in/s",
    "out/s",
    "age",
    "state",
)
"""Headings of the table of a group's brokers."""
CONTROLLER_LINE: Final = "{:<12} {:<22} {:<9} {:>6} {:>6}  {}"
"""Layout of a controller's line, for `output.format_columns`; the next constants likewise."""
BROKER_LINE: Final = (
    "{:>4} {:<22} {:<7} {:>6} {:<4} {:<5} {:>15} {:>15} {:>16} {:>10} {:>10} {:>6}  {}"
)
LAG_COLUMNS: Final = ("consumer group", "topic", "behind", "for", "members")
"""Headings of the table of consumer groups with unconsumed messages."""
LAG_LINE: Final = "     {:<32} {:<32} {:>12}  {:<16} {}"
POP_COLUMNS: Final = ("pops by", "popped/s", "acked/s", "in flight", "revival late by")
"""Headings of the table of consumer groups that pop."""
POP_LINE: Final = "     {:<32} {:>12} {:>12} {:>12}  {}"
LAGS_SHOWN: Final = 8
"""Consumer groups that a screen shows of each broker group; lines and JSON have all."""
STYLES: Final = {
    "leader": "magenta",
    "election": "bold yellow",
    "set": "cyan",
    "role": "yellow",
    "answer": "red",
}
"""Style of a change on the screen, by its kind."""
OLD: Final = "bright_black"
"""Grey: values that no node confirmed in this sample."""
NUMBERS: Final = frozenset(
    (
        *("term", "epoch", "end", "confirm", "lag", "in/s", "out/s", "age", "behind"),
        *("popped/s", "acked/s", "in flight"),
    )
)
"""Headings of columns that are aligned right."""
TOLD: Final = frozenset(("set", "alive"))
"""Columns that controllers reported; they are as old as the group's answer."""
WIDE: Final = 124
"""Width in characters at which all columns of a broker fit; a narrower terminal shows fewer."""
LEFT_OUT: Final = frozenset(("alive", "end", "in/s", "out/s"))
"""Columns of a broker that a narrower terminal does not show."""
KIB: Final = 1024
UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
"""Units of sizes: powers of KIB."""
UNKNOWN: Final = "-"
"""Text for an unknown value."""


def sample_lines(sample: "Sample") -> list[str]:
    """Format the whole sample as lines, an empty one last; times are local."""
    lines = [local_time(sample.at_ms), *(f"! {error}" for error in sample.errors)]
    if sample.controllers:
        lines.append(format_columns(CONTROLLER_LINE, *CONTROLLER_COLUMNS))
        lines += [
            format_columns(CONTROLLER_LINE, *_controller_row(each)) for each in sample.controllers
        ]
    for group in sample.groups:
        lines += [group_title(group), format_columns(BROKER_LINE, *BROKER_COLUMNS)]
        lines += [format_columns(BROKER_LINE, *_broker_row(group, each)) for each in group.brokers]
        if group.lags:
            lines.append(format_columns(LAG_LINE, *LAG_COLUMNS))
            lines += [format_columns(LAG_LINE, *_lag_row(each)) for each in group.lags]
        if group.pops:
            lines.append(format_columns(POP_LINE, *POP_COLUMNS))
            lines += [format_columns(POP_LINE, *_pop_row(each)) for each in group.pops]
        lines += [f"     {line}" for line in waiting_lines(group.waiting, sample.at_ms)]
    return [*lines, ""]


def change_lines(changes: Sequence["Change"]) -> list[str]:
    """Format the changes as lines, each with the local time at which it was noticed."""
    return [f"* {local_time(change.at_ms)} {change.text}" for change in changes]


def group_title(group: "GroupView") -> str:
    """Format the title `broker-a of DefaultCluster: master 1, epoch 3, SyncStateSet {1,2} of epoch
    5`, with the age of the data if no node confirmed it in this sample.
    """
    master = "no master" if group.master_id is None else f"master {group.master_id}"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    members = "{" + ",".join(map(str, group.sync_state_set)) + "}"
    if group.set_epoch is not None:
        members += f" of epoch {group.set_epoch}"
    shown = f", SyncStateSet {members}" if group.sync_state_set or group.set_epoch else ""
    where = f" of {group.cluster}" if group.cluster else ""
    old = f" ({age_text(group.age_ms)} ago)" if group.age_ms else ""
    return f"{group.broker_name}{where}: {master}{epoch}{shown}{old}"


def waiting_lines(view: "WaitingView", now_ms: int) -> list[str]:
    """Format the numbers of waiting timers and open transactions, a line for each kind that has
    any; `now_ms` is epoch ms."""
    lines = []
    if view.timers or view.next_due_ms is not None:
        due = view.next_due_ms
        next_due = f", next in {duration_text(max(0, due - now_ms))}" if due is not None else ""
        backlog = ", ".join(f"{bound}: {count}" for bound, count in view.backlog.items() if count)
        within = f"; due within {backlog}" if backlog else ""
        lines.append(f"timers: {view.timers} wait{next_due}{within}")
    if view.halves or view.asked or view.unasked or view.given_up:
        lines.append(
            f"transactions: {view.halves} open; asked {view.asked} times, {view.unasked} times "
            f"without a producer, given up {view.given_up}"
        )
    return lines


def age_text(age_ms: int | None) -> str:
    """Format an age: `-` for 0 (this sample), `0.4 s`, `12 s`, `3 min`, `5 h`; `never` for None."""
    if age_ms is None:
        return "never"
    if not age_ms:
        return UNKNOWN
    seconds = age_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def size_text(size: int | None) -> str:
    """Format a number of bytes: `0 B`, `12.5 KiB`, `3.0 GiB`; `-` for None."""
    if size is None:
        return UNKNOWN
    if size < KIB:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / KIB**power:.1f} {UNITS[power - 1]}"


def lag_text(broker: "BrokerView") -> str:
    """Format a broker's lag in bytes, and in ms if that is known and not zero."""
    behind = f" {broker.lag_ms} ms" if broker.lag_ms else ""
    return f"{size_text(broker.lag)}{behind}"


def _controller_row(view: "ControllerView") -> tuple[object, ...]:
    role = "leader" if view.is_leader else "follower"
    return (
        view.id,
        view.address,
        UNKNOWN if view.error else role,
        _value_text(view.term),
        age_text(view.age_ms),
        view.error,
    )


def _broker_row(group: "GroupView", view: "BrokerView") -> tuple[object, ...]:
    in_set = view.broker_id in group.sync_state_set if group.sync_state_set else None
    doubt = "?" if group.age_ms else ""
    return (
        view.broker_id,
        view.address,
        view.role or UNKNOWN,
        _value_text(view.epoch),
        _value_text(in_set, doubt),
        _value_text(view.alive, doubt),
        _value_text(view.log_end),
        _value_text(view.confirm),
        lag_text(view),
        f"{view.in_tps:.1f}",
        f"{view.out_tps:.1f}",
        age_text(view.age_ms),
        view.error or _state_text(view),
    )


def _state_text(view: "BrokerView") -> str:
    """Format a broker's state, after `acts since 2026-11-25 12:00:00.000` for an acting master."""
    if view.acting_since_ms is None:
        return view.state
    return f"acts since {local_time(view.acting_since_ms)} {view.state}".rstrip()


def _lag_row(view: "LagView") -> tuple[object, ...]:
    return (
        view.consumer_group,
        view.topic,
        view.messages,
        duration_text(view.behind_ms, view.known),
        view.members or "away",
    )


def _pop_row(view: "PopView") -> tuple[object, ...]:
    return (
        view.consumer_group,
        f"{view.popped_tps:.1f}",
        f"{view.acked_tps:.1f}",
        view.in_flight,
        age_text(view.behind_ms),
    )


def _value_text(value: int | bool | None, doubt: str = "") -> str:
    """A value as text: UNKNOWN for None, yes or no for a bool, followed by `doubt`."""
    if isinstance(value, bool):
        return ("yes" if value else "no") + doubt
    return UNKNOWN if value is None else str(value)


def build_screen(
    title: str, sample: "Sample", changes: Sequence["Change"], width: int
) -> "RenderableType":
    """Build what rich shows of the sample and the changes, newest last, on a terminal of `width`
    characters; prints nothing."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{title}  {local_time(sample.at_ms)}", style="bold")]
    parts += [Text(error, style="red") for error in sample.errors]
    if sample.controllers:
        rows = [_controller_row(each) for each in sample.controllers]
        styles = [_row_style(each.error, each.is_leader) for each in sample.controllers]
        parts += ["", _build_table(CONTROLLER_COLUMNS, rows, styles)]
    for group in sample.groups:
        rows = [_broker_row(group, each) for each in group.brokers]
        styles = [
            _row_style(each.error, each.broker_id == group.master_id) for each in group.brokers
        ]
        left_out = set() if width >= WIDE else LEFT_OUT
        old = TOLD if group.age_ms else ()
        parts += [
            "",
            Text(group_title(group), style=OLD if group.age_ms else "bold cyan"),
            _build_table(BROKER_COLUMNS, rows, styles, left_out, old),
        ]
        if group.lags:
            lags = [_lag_row(each) for each in group.lags[:LAGS_SHOWN]]
            away = ["" if each.members else "yellow" for each in group.lags[:LAGS_SHOWN]]
            parts += ["", _build_table(LAG_COLUMNS, lags, away)]
        if group.pops:
            pops = [_pop_row(each) for each in group.pops[:LAGS_SHOWN]]
            parts += ["", _build_table(POP_COLUMNS, pops, [""] * len(pops))]
        parts += [Text(line) for line in waiting_lines(group.waiting, sample.at_ms)]
    parts.append(Text("\nWhat happened", style="bold cyan"))
    for each in changes:
        line = f"{local_time(each.at_ms)} {each.text}"
        parts.append(Text(line, style=STYLES.get(each.kind, "")))
    return Group(*parts)


def _row_style(error: str, is_first: bool) -> str:
    """Style of a row: red with an error, bold for the first one."""
    return "red" if error else "bold" if is_first else ""


def _build_table(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    styles: Sequence[str],
    left_out: Collection[str] = (),
    old: Collection[str] = (),
) -> "RenderableType":
    """Build a table whose cells are plain text: rich would read [brackets] in strings as mark-up.

    Where the terminal is too narrow the last column takes several lines. Columns in `old` are grey.
    """
    from rich.table import Table
    from rich.text import Text

    shown = [number for number, name in enumerate(names) if name not in left_out]
    table = Table(box=None, pad_edge=False)
    for number in shown:
        name = names[number]
        justify: JustifyMethod = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=name != names[-1])
    for row, style in zip(rows, styles, strict=True):
        cells = [
            Text(str(row[number]), style=OLD if names[number] in old else "") for number in shown
        ]
        table.add_row(*cells, style=style)
    return table

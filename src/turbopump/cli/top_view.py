"""How `turbopump top` looks: tables of a screen, lines of a file.

Owns the columns and the units. It must never ask anybody; rich is imported only for a screen.
Called by top.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from turbopump.cli.output import columns, local_time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turbopump.net.client.group_view import (
        BrokerView,
        Change,
        ControllerView,
        GroupView,
        Sample,
    )

CONTROLLER_COLUMNS: Final = ("controller", "address", "role", "term", "error")
BROKER_COLUMNS: Final = (
    "id", "address", "role", "epoch", "set", "alive", "end", "confirm", "lag", "in/s", "out/s",
    "state",
)  # fmt: skip
CONTROLLER_LINE: Final = "{:<12} {:<22} {:<9} {:>6}  {}"
BROKER_LINE: Final = (
    "{:>4} {:<22} {:<7} {:>6} {:<4} {:<5} {:>15} {:>15} {:>16} {:>10} {:>10}  {}"
)
STYLES: Final = {
    "leader": "magenta",
    "election": "bold yellow",
    "set": "cyan",
    "role": "yellow",
    "answer": "red",
}
KIB: Final = 1024
UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
UNKNOWN: Final = "-"


def sample_lines(sample: "Sample") -> list[str]:
    """Everything seen, as lines."""
    lines = [local_time(sample.at_ms), *(f"! {error}" for error in sample.errors)]
    if sample.controllers:
        lines.append(columns(CONTROLLER_LINE, *CONTROLLER_COLUMNS))
        lines += [columns(CONTROLLER_LINE, *_controller(each)) for each in sample.controllers]
    for group in sample.groups:
        lines += [group_title(group), columns(BROKER_LINE, *BROKER_COLUMNS)]
        lines += [columns(BROKER_LINE, *_broker(group, each)) for each in group.brokers]
    return [*lines, ""]


def change_lines(changes: Sequence["Change"]) -> list[str]:
    """What happened, with the time it was seen."""
    return [f"* {local_time(change.at_ms)} {change.text}" for change in changes]


def group_title(group: "GroupView") -> str:
    """`broker-a of DefaultCluster: master 1, epoch 3, SyncStateSet {1,2} of epoch 5`."""
    master = "no master" if group.master_id is None else f"master {group.master_id}"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    members = "{" + ",".join(map(str, group.sync_state_set)) + "}"
    if group.set_epoch is not None:
        members += f" of epoch {group.set_epoch}"
    shown = f", SyncStateSet {members}" if group.sync_state_set or group.set_epoch else ""
    where = f" of {group.cluster}" if group.cluster else ""
    return f"{group.broker_name}{where}: {master}{epoch}{shown}"


def size_text(size: int | None) -> str:
    """`0 B`, `12.5 KiB`, `3.0 GiB`."""
    if size is None:
        return UNKNOWN
    if size < KIB:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / KIB**power:.1f} {UNITS[power - 1]}"


def lag_text(broker: "BrokerView") -> str:
    """Bytes and, if known and not zero, for how long."""
    behind = f" {broker.lag_ms} ms" if broker.lag_ms else ""
    return f"{size_text(broker.lag)}{behind}"


def _controller(view: "ControllerView") -> tuple[object, ...]:
    role = "leader" if view.is_leader else "follower"
    return (
        view.id,
        view.address,
        UNKNOWN if view.error else role,
        _known(view.term),
        view.error,
    )


def _broker(group: "GroupView", view: "BrokerView") -> tuple[object, ...]:
    in_set = view.broker_id in group.sync_state_set if group.sync_state_set else None
    return (
        view.broker_id,
        view.address,
        view.role or UNKNOWN,
        _known(view.epoch),
        _known(in_set),
        _known(view.alive),
        _known(view.log_end),
        _known(view.confirm),
        lag_text(view),
        f"{view.in_tps:.1f}",
        f"{view.out_tps:.1f}",
        view.error or view.state,
    )


def _known(value: int | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return UNKNOWN if value is None else str(value)


def screen(title: str, sample: "Sample", changes: Sequence["Change"]) -> "RenderableType":
    """Everything seen and what happened, newest last, for a terminal."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{title}  {local_time(sample.at_ms)}", style="bold")]
    parts += [Text(error, style="red") for error in sample.errors]
    if sample.controllers:
        table = Table(*CONTROLLER_COLUMNS, expand=True)
        for each in sample.controllers:
            style = "red" if each.error else "bold" if each.is_leader else ""
            table.add_row(*_texts(_controller(each)), style=style)
        parts.append(table)
    for group in sample.groups:
        table = Table(*BROKER_COLUMNS, title=Text(group_title(group)), expand=True)
        for column in table.columns[6:11]:
            column.justify = "right"
        for broker in group.brokers:
            is_master = broker.broker_id == group.master_id
            style = "red" if broker.error else "bold" if is_master else ""
            table.add_row(*_texts(_broker(group, broker)), style=style)
        parts.append(table)
    told = Text("\n").join(
        Text(f"{local_time(each.at_ms)} {each.text}", style=STYLES.get(each.kind, ""))
        for each in changes
    )
    parts.append(Panel(told, title="What happened", title_align="left"))
    return Group(*parts)


def _texts(cells: Sequence[object]) -> list["RenderableType"]:
    """Cells as they are: rich would read [brackets] in them as mark-up."""
    from rich.text import Text

    return [Text(str(cell)) for cell in cells]

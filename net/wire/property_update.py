"""Properties taken over into a node's configuration: all of them, or none and one clear sentence.

Owns how a line finds its key and what a bad one is told. It must never know which node has which
key: its table says so. Called by the config modules of controller and name server.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turbopump.net.wire.java_properties import PropertiesError, Property, printable
from turbopump.net.wire.property_values import SECRET_KEYS, Parse, show

MAX_KEY_SHOWN: Final = 100
"""Characters of a foreign key or value repeated in a message."""


@dataclass(slots=True, frozen=True)
class KeyTable:
    """The keys of one kind of node."""

    keys: Mapping[str, tuple[str, Parse]]
    """Attribute and parser, by key."""
    tls: frozenset[str]
    check_tls: Callable[[dict[str, str]], object]
    """Raises ValueError for what cannot be."""
    no_effect: Mapping[str, str]
    """RocketMQ's defaults for keys that do nothing here."""
    aliases: Mapping[str, str] = field(default_factory=dict)

    def knows(self, key: str) -> bool:
        """Whether such a node has this key."""
        known = (self.keys, self.aliases, self.tls, self.no_effect)
        return any(key in keys for keys in known)

    def shown(
        self, config: object, others: dict[str, str], tls: dict[str, str], *, secrets: bool
    ) -> dict[str, str]:
        """Every key and its value as text; passwords only with `secrets`."""
        found = {**self.no_effect, **others, **tls}
        for key in () if secrets else SECRET_KEYS:
            found.pop(key, None)
        for key, (attribute, _) in self.keys.items():
            found[key] = show(getattr(config, attribute))
        return found


@dataclass(slots=True)
class Update:
    """What properties change; nothing is changed yet."""

    tls: dict[str, str]
    """All there are then."""
    values: dict[str, object] = field(default_factory=dict)
    """By attribute."""
    others: dict[str, str] = field(default_factory=dict)
    """Of keys that do nothing here."""
    warnings: list[str] = field(default_factory=list)


def read(
    table: KeyTable,
    properties: Iterable[Property],
    tls: dict[str, str],
    error_type: type[PropertiesError],
) -> Update:
    """The update that the properties ask for, where `tls` is in force. Raises `error_type`."""
    update = Update(dict(tls))
    for item in properties:
        known = table.keys.get(table.aliases.get(item.key, item.key))
        if known is not None:
            update.values[known[0]] = _parse(known[1], item, error_type)
        elif item.key in table.tls:
            update.tls[item.key] = item.value.strip()
            try:
                table.check_tls(update.tls)
            except ValueError as error:
                raise error_type(f"{error}{_place(item)}") from None
        elif item.key in table.no_effect:
            update.others[item.key] = item.value
        else:
            key = printable(item.key[:MAX_KEY_SHOWN])
            update.warnings.append(f"unknown key {key} ignored{_place(item)}")
    return update


def _place(item: Property) -> str:
    return f" (line {item.line})" if item.line else ""


def _parse(parse: Parse, item: Property, error_type: type[PropertiesError]) -> object:
    try:
        return parse(item.value.strip())
    except error_type as error:
        raise error_type(f"{error}{_place(item)}") from None
    except ValueError as error:
        shown = item.value[:MAX_KEY_SHOWN]
        raise error_type(f"{item.key}={shown}: expected {error}{_place(item)}") from None

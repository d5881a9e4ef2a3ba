"""Properties taken over into a node's configuration: all of them, or none and one clear sentence.

Owns how a line finds its key and what is said of a bad one. It must never know which node has which
key: its table says so. Called by the config modules of controller and name server.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turbopump.engine.types import Buffer
from turbopump.net.wire.java_properties import (
    ConfigError,
    PropertiesError,
    Property,
    parse_properties,
    printable,
)
from turbopump.net.wire.property_values import (
    IdleKey,
    Parse,
    idle_values,
    is_secret,
    place,
    show,
    shown,
    without_effect,
)

MAX_UPDATE: Final = 64 << 10
"""Bytes of a request that changes a configuration: all keys of a broker are a fifth of it."""
MAX_LINES: Final = 2_000
"""Of such a request: a broker has some 500 keys."""
MAX_TOLD: Final = 20
"""Warnings of one that are logged."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]*")

MAX_KEY_SHOWN: Final = 100
"""Characters of a foreign key repeated in a message."""


@dataclass(slots=True, frozen=True)
class KeyTable:
    """The keys of one kind of node."""

    keys: Mapping[str, tuple[str, Parse]]
    """Attribute and parser, by key."""
    tls: frozenset[str]
    check_tls: Callable[[dict[str, str]], object]
    """Raises ValueError for what cannot be."""
    idle: Mapping[str, IdleKey]
    aliases: Mapping[str, str] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    """Keys that may change while the node runs."""

    def knows(self, key: str) -> bool:
        """Whether such a node has this key."""
        known = (self.keys, self.aliases, self.tls, self.idle)
        return any(key in keys for keys in known)

    def changing(self, properties: Iterable[Property], config: object) -> list[Property]:
        """What of a request is to be taken over and kept. Raises PropertiesError for what the node
        has been started with; that value itself changes nothing."""
        kept: list[Property] = []
        fixed: list[str] = []
        for item in properties:
            key = self.aliases.get(item.key, item.key)
            if key in self.live or key in self.idle:
                kept.append(item)
            elif key in self.tls or key in self.keys:
                before = None if key in self.tls else show(getattr(config, self.keys[key][0]))
                fixed += [] if before == item.value.strip() else [key]
        if fixed:
            raise PropertiesError(
                f"{', '.join(fixed)} cannot change while this node runs: set it in its file and"
                " restart"
            )
        return kept

    def shown(
        self, config: object, others: dict[str, str], tls: dict[str, str], *, secrets: bool
    ) -> dict[str, str]:
        """Every key and its value as text; passwords only with `secrets`."""
        found = idle_values(self.idle, others)
        found |= {key: value for key, value in tls.items() if secrets or not is_secret(key)}
        found |= others if secrets else {}
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


def parse_update(body: Buffer) -> list[Property]:
    """The properties of a request that changes a configuration.

    A peer's text becomes lines of a file: keys are names, and nothing has a character that a line
    cannot show. Raises PropertiesError.
    """
    if len(body) > MAX_UPDATE:
        raise PropertiesError(f"a change of the configuration is over {MAX_UPDATE} bytes")
    if bytes(body).count(b"\n") > MAX_LINES:
        raise PropertiesError(f"a change of the configuration has over {MAX_LINES} lines")
    try:
        properties = parse_properties(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise PropertiesError("the properties are not UTF-8") from None
    for item in properties:
        if not _KEY.fullmatch(item.key):
            raise PropertiesError(f"{item.key[:MAX_KEY_SHOWN]!r} is no key{place(item)}")
        if not item.value.isprintable():
            raise PropertiesError(f"{item.key}: the value is not one line of text{place(item)}")
    # Of a key that is there several times the last one counts, as in Java.
    return list({item.key: item for item in properties}.values())


def read(table: KeyTable, properties: Iterable[Property], tls: dict[str, str]) -> Update:
    """The update that the properties ask for, where `tls` is in force. Raises ConfigError."""
    update = Update(dict(tls))
    in_vain: list[Property] = []
    for item in properties:
        key = table.aliases.get(item.key, item.key)
        known = table.keys.get(key)
        if known is not None:
            update.values[known[0]] = _parse(known[1], item)
        elif key in table.tls:
            update.tls[key] = item.value.strip()
            try:
                table.check_tls(update.tls)
            except ValueError as error:
                raise ConfigError(f"{error}{place(item)}") from None
        elif item.key in table.idle:
            idle = table.idle[item.key]
            if refusal := idle.refusal(item):
                raise ConfigError(refusal)
            update.others[item.key] = item.value
            if not idle.is_quiet(item.value):
                in_vain.append(item)
        else:
            name = printable(item.key[:MAX_KEY_SHOWN])
            update.warnings.append(f"unknown key {name} ignored{place(item)}")
    update.warnings += without_effect(in_vain)
    return update


def _parse(parse: Parse, item: Property) -> object:
    try:
        return parse(item.value.strip())
    except ConfigError as error:
        raise ConfigError(f"{error}{place(item)}") from None
    except ValueError as error:
        raise ConfigError(f"{shown(item)}: expected {error}{place(item)}") from None

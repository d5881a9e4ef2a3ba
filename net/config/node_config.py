"""The configuration of a node: RocketMQ's properties, typed and checked.

Owns how a property finds its key, what is said of a bad one, what a running node may take over,
and what is shown. It must never know a key: the configuration of each kind of node declares its
own (`engine/keys.py`). Called by the nodes, by the handlers of 25/26, 318/319 and 1009/1010, and
by the CLI.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import ClassVar, Final, NamedTuple

from turbopump.engine.keys import Key, keys_of, sections_of
from turbopump.engine.types import StoreError
from turbopump.net.config.idle import IdleKey, idle_values, is_secret, place, shown, without_effect
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.wire.java_properties import (
    ConfigError,
    PropertiesError,
    Property,
    printable,
)

MAX_KEY_SHOWN = 100
"""Characters of a foreign key repeated in a message."""

SUGGESTED_MAX: Final = 10
"""Warnings after which no likely key is looked for: each search takes some milliseconds."""

SUGGESTED_RATIO: Final = 0.8
"""How much two keys have in common at least, by difflib, for one to be meant by the other."""


class Declared(NamedTuple):
    """Where the value of a key is."""

    section: str
    """The attribute of the configuration that holds it; empty: the configuration itself."""
    attribute: str
    key: Key


@dataclass(slots=True)
class NodeConfig:
    """What the configurations of all kinds of node have in common."""

    IDLE: ClassVar[Mapping[str, IdleKey]] = {}
    """Keys of RocketMQ that do nothing here."""
    TLS: ClassVar[Mapping[str, Key]] = {}
    """Keys of TLS; RocketMQ takes them from system properties or tls.config.file."""
    NODE: ClassVar[str] = "this node"
    NEVER_BY_REQUEST: ClassVar[frozenset[str]] = frozenset({"configBlackList", "rocketmqHome"})
    """What no request may change, whatever `config_black_list` says."""

    config_black_list: str = ""
    tls_properties: dict[str, str] = field(default_factory=dict)
    """Those that were given, as text."""
    others: dict[str, str] = field(default_factory=dict)
    """Values of keys that do nothing here."""

    @classmethod
    def knows(cls, key: str) -> bool:
        """Whether such a node has this key, or RocketMQ's would."""
        return any(key in keys for keys in (declared(cls), _aliases(cls), cls.TLS, cls.IDLE))

    @classmethod
    def takes(cls, key: str) -> bool:
        """Whether a running node takes a change of this key, which may do nothing here."""
        found = declared(cls).get(_aliases(cls).get(key, key))
        return found.key.live if found is not None else key in cls.IDLE

    @property
    def tls(self) -> TlsSettings:
        """Of its server."""
        return TlsSettings.from_properties(self.tls_properties)

    @property
    def client_tls(self) -> ClientTlsSettings | None:
        """Of its connections to other nodes; None: without TLS."""
        return ClientTlsSettings.from_properties(self.tls_properties)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request may not touch."""
        configured = (part.strip() for part in self.config_black_list.split(";"))
        return frozenset(part for part in configured if part) | self.NEVER_BY_REQUEST

    def is_black_listed(self, key: str) -> bool:
        """Whether a request may not touch a key, by whichever of its names."""
        aliases = _aliases(type(self))
        listed = {aliases.get(name, name) for name in self.black_list}
        return aliases.get(key, key) in listed

    def values(self) -> dict[str, str]:
        """Every key and the value in force as text, keys of RocketMQ that do nothing here included;
        of TLS those that were given. Never credentials."""
        found = idle_values(self.IDLE, self.others)
        found |= {key: text for key, text in self.tls_properties.items() if not is_secret(key)}
        for name, (of, attribute, key) in declared(type(self)).items():
            holder = getattr(self, of) if of else self
            text = key.kind.show(getattr(holder, key.in_force or attribute))
            if text or key.shows_empty:
                found[name] = text
        return found

    def update(self, properties: Iterable[Property]) -> list[str]:
        """Take over values; returns warnings. Raises ConfigError and then changes nothing."""
        keys, aliases = declared(type(self)), _aliases(type(self))
        after = copy(self)
        after.tls_properties, after.others = dict(self.tls_properties), dict(self.others)
        changed: dict[str, dict[str, object]] = {}
        warnings: list[str] = []
        in_vain: list[Property] = []
        for item in properties:
            name = aliases.get(item.key, item.key)
            found, idle = keys.get(name), self.IDLE.get(item.key)
            if found is not None:
                of = changed.setdefault(found.section, {})
                of[found.attribute] = _parse(found.key, item)
            elif name in self.TLS:
                _parse(self.TLS[name], item)
                after.tls_properties[name] = item.value.strip()
            elif idle is not None:
                if refusal := idle.refusal(item):
                    raise ConfigError(refusal)
                after.others[item.key] = item.value
                if not idle.is_quiet(item.value):
                    in_vain.append(item)
            else:
                hint = self._meant(item.key) if len(warnings) < SUGGESTED_MAX else ""
                warnings.append(f"{_unknown(item.key)} ignored{place(item)}{hint}")
        after._change(changed)
        warnings += without_effect(in_vain) + after.check(self)
        for each in fields(self):
            setattr(self, each.name, getattr(after, each.name))
        return warnings

    @classmethod
    def _meant(cls, key: str) -> str:
        """A question for the known key that is most like an unknown one; empty if none is."""
        known = {
            name.lower(): name
            for names in (cls.IDLE, _aliases(cls), cls.TLS, declared(cls))
            for name in names
        }
        wanted = key[:MAX_KEY_SHOWN].lower()
        close = get_close_matches(wanted, known, n=1, cutoff=SUGGESTED_RATIO)
        return f" (did you mean {known[close[0]]}?)" if close else ""

    def check(self, _before: "NodeConfig") -> list[str]:
        """What is allowed and hardly meant, as warnings, after a change. Raises ConfigError for
        values that contradict each other."""
        return []

    def why_not(self, item: Property) -> str:
        """Why a running node does not take this over, as a sentence; empty if it does."""
        if self.takes(item.key):
            idle = self.IDLE.get(item.key)
            return idle.refusal(item) if idle is not None else ""
        if self.knows(item.key):
            return self._fixed([item.key])
        return _unknown(item.key)

    def changing(self, properties: Iterable[Property]) -> list[Property]:
        """What of a request a running node takes over and keeps: not what it does not know, nor
        what is in force. Raises PropertiesError for what needs a restart."""
        kept: list[Property] = []
        fixed: list[str] = []
        in_force = self.values()
        for item in properties:
            if self.takes(item.key):
                kept.append(item)
            elif self.knows(item.key) and in_force.get(item.key) != item.value.strip():
                fixed.append(item.key)
        if fixed:
            raise PropertiesError(self._fixed(fixed))
        return kept

    def _fixed(self, keys: list[str]) -> str:
        return (
            f"{', '.join(keys)} cannot change while {self.NODE} runs: set it in its file and"
            " restart"
        )

    def _change(self, changed: Mapping[str, Mapping[str, object]]) -> None:
        for of, values in changed.items():
            if not of:
                for attribute, value in values.items():
                    setattr(self, attribute, value)
                continue
            try:
                setattr(self, of, replace(getattr(self, of), **values))
            except StoreError as error:
                raise ConfigError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Table:
    keys: Mapping[str, Declared]
    aliases: Mapping[str, str]


_TABLES: Final[dict[type, _Table]] = {}
"""By class: made once, as the same classes are asked over and over."""


def declared(kind: type[NodeConfig]) -> Mapping[str, Declared]:
    """Every key that does something on such a node, by name, but for those of TLS."""
    return _table(kind).keys


def _aliases(kind: type[NodeConfig]) -> Mapping[str, str]:
    return _table(kind).aliases


def _table(kind: type[NodeConfig]) -> _Table:
    if kind not in _TABLES:
        found = [Declared("", name, key) for name, key in keys_of(kind).items()]
        for attribute, of in sections_of(kind).items():
            found += [Declared(attribute, name, key) for name, key in keys_of(of).items()]
        keys = {one.key.name: one for one in found}
        assert len(keys) == len(found), "a key is declared twice"
        assert keys.keys().isdisjoint(kind.IDLE), "a key that does something is among the idle ones"
        named = [*(one.key for one in found), *kind.TLS.values()]
        _TABLES[kind] = _Table(keys, {alias: key.name for key in named for alias in key.aliases})
    return _TABLES[kind]


def _unknown(key: str) -> str:
    return f"unknown key {printable(key[:MAX_KEY_SHOWN])}"


def _parse(key: Key, item: Property) -> object:
    try:
        return key.kind.parse(item.value.strip())
    except ConfigError as error:
        raise ConfigError(f"{error}{place(item)}") from None
    except ValueError as error:
        raise ConfigError(f"{shown(item)}: expected {error}{place(item)}") from None

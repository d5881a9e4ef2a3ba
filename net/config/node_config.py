"""The configuration of a node: RocketMQ's properties, typed and checked.

Owns the search of a property's key, the errors for bad values, the choice of changes that a running
node accepts, and the list of values to show. It must never know a key: the configuration of each
kind of node declares its own (`engine/keys.py`).
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import ClassVar, Final, NamedTuple

from turbopump.engine.keys import Key, keys_of, sections_of
from turbopump.engine.types import StoreError
from turbopump.net.config.idle import (
    IdleKey,
    idle_values,
    is_secret,
    line_suffix,
    printable_property,
    without_effect,
)
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.wire.java_properties import (
    ConfigError,
    PropertiesError,
    Property,
    escape_unprintable,
)

MAX_KEY_SHOWN = 100
"""Maximum characters of an unknown key in a message."""

SUGGESTED_MAX: Final = 10
"""Number of warnings after which no similar key is searched: each search takes some ms."""

SUGGESTED_RATIO: Final = 0.8
"""Least similarity, by difflib, of a known key that is suggested for an unknown one."""


class Declared(NamedTuple):
    """A key of a configuration and the attribute that holds its value."""

    section: str
    """Attribute of the configuration with the section of the key; empty: the configuration
    itself."""
    attribute: str
    """Attribute of the section, or of the configuration, with the value."""
    key: Key
    """The declaration of the key."""


@dataclass(slots=True)
class NodeConfig:
    """Base of the configurations of all kinds of node. A property's value is an attribute;
    `update_keys` changes it."""

    IDLE: ClassVar[Mapping[str, IdleKey]] = {}
    """Keys of RocketMQ without effect here, by name."""
    TLS: ClassVar[Mapping[str, Key]] = {}
    """Keys of TLS, by name; RocketMQ takes them from system properties or tls.config.file."""
    NODE: ClassVar[str] = "this node"
    """The kind of node, for messages."""
    NEVER_BY_REQUEST: ClassVar[frozenset[str]] = frozenset({"configBlackList", "rocketmqHome"})
    """Keys that no request may change, independent of `config_black_list`."""

    config_black_list: str = ""
    """Keys that no request may change, separated by semicolons."""
    tls_properties: dict[str, str] = field(default_factory=dict)
    """Given keys of TLS with their values as text."""
    others: dict[str, str] = field(default_factory=dict)
    """Given keys without effect here with their values as text."""

    @classmethod
    def has_key(cls, key: str) -> bool:
        """Whether nodes of this kind have the key `key` or alias: with an effect here, or only in
        RocketMQ."""
        return any(
            key in keys for keys in (declared_keys(cls), _keys_by_alias(cls), cls.TLS, cls.IDLE)
        )

    @classmethod
    def accepts_change(cls, key: str) -> bool:
        """Whether a running node accepts a change of `key`, a key or an alias; True for keys
        without effect, False for unknown keys and keys of TLS."""
        found = declared_keys(cls).get(_keys_by_alias(cls).get(key, key))
        return found.key.live if found is not None else key in cls.IDLE

    @property
    def tls(self) -> TlsSettings:
        """TLS settings of the node's server, made of `tls_properties` for each call."""
        return TlsSettings.from_properties(self.tls_properties)

    @property
    def client_tls(self) -> ClientTlsSettings | None:
        """TLS settings of connections to other nodes, made for each call; None: without TLS."""
        return ClientTlsSettings.from_properties(self.tls_properties)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request may not change: `config_black_list` and NEVER_BY_REQUEST."""
        configured = (part.strip() for part in self.config_black_list.split(";"))
        return frozenset(part for part in configured if part) | self.NEVER_BY_REQUEST

    def is_black_listed(self, key: str) -> bool:
        """Whether a request may not change `key`, whichever of its names is in the list or is
        given."""
        aliases = _keys_by_alias(type(self))
        listed = {aliases.get(name, name) for name in self.black_list}
        return aliases.get(key, key) in listed

    def values_as_text(self) -> dict[str, str]:
        """A new dict of every key with its current value as text, including keys of RocketMQ
        without effect here; for TLS only the given keys. No credentials."""
        found = idle_values(self.IDLE, self.others)
        found |= {key: text for key, text in self.tls_properties.items() if not is_secret(key)}
        for name, (section, attribute, key) in declared_keys(type(self)).items():
            if is_secret(name):
                continue
            holder = getattr(self, section) if section else self
            text = key.kind.to_text(getattr(holder, key.in_force or attribute))
            if text or key.shows_empty:
                found[name] = text
        return found

    def update_keys(self, properties: Iterable[Property]) -> list[str]:
        """Check the properties and change this configuration, all or, if ConfigError is raised,
        none. Returns warnings, sentences, about unknown keys (ignored), keys without effect and
        unlikely values. Of a repeated key the last value counts. Does not check whether a running
        node takes the change."""
        keys, aliases = declared_keys(type(self)), _keys_by_alias(type(self))
        after = copy(self)
        after.tls_properties, after.others = dict(self.tls_properties), dict(self.others)
        changed: dict[str, dict[str, object]] = {}
        warnings: list[str] = []
        in_vain: list[Property] = []
        for item in properties:
            name = aliases.get(item.key, item.key)
            found, idle = keys.get(name), self.IDLE.get(item.key)
            if found is not None:
                given = changed.setdefault(found.section, {})
                given[found.attribute] = _parse(found.key, item)
            elif name in self.TLS:
                _parse(self.TLS[name], item)
                after.tls_properties[name] = item.value.strip()
            elif idle is not None:
                if refusal := idle.reason_to_refuse(item):
                    raise ConfigError(refusal)
                after.others[item.key] = item.value
                if not idle.is_quiet(item.value):
                    in_vain.append(item)
            else:
                hint = self._suggest_key(item.key) if len(warnings) < SUGGESTED_MAX else ""
                warnings.append(f"{_unknown_warning(item.key)} ignored{line_suffix(item)}{hint}")
        after._set_values(changed)
        warnings += without_effect(in_vain) + after.check_change(self)
        for each in fields(self):
            setattr(self, each.name, getattr(after, each.name))
        return warnings

    @classmethod
    def _suggest_key(cls, key: str) -> str:
        """Return a question that names the known key most similar to an unknown one; empty if no
        key is similar."""
        known = {
            name.lower(): name
            for names in (cls.IDLE, _keys_by_alias(cls), cls.TLS, declared_keys(cls))
            for name in names
        }
        wanted = key[:MAX_KEY_SHOWN].lower()
        close = get_close_matches(wanted, known, n=1, cutoff=SUGGESTED_RATIO)
        return f" (did you mean {known[close[0]]}?)" if close else ""

    def check_change(self, _before: "NodeConfig") -> list[str]:
        """Check values together after a change; returns warnings, sentences about values that are
        allowed but unlikely. `_before` is the configuration before the change. A kind of node
        overrides it.

        Raises ConfigError for values that contradict each other.
        """
        return []

    def refusal_reason(self, item: Property) -> str:
        """The reason why a running node does not accept a change of this key, as a sentence; empty
        if it does. The value is checked only for keys without effect."""
        if self.accepts_change(item.key):
            idle = self.IDLE.get(item.key)
            return idle.reason_to_refuse(item) if idle is not None else ""
        if self.has_key(item.key):
            return self._restart_needed([item.key])
        return _unknown_warning(item.key)

    def accepted_changes(self, properties: Iterable[Property]) -> list[Property]:
        """The properties of a request to apply to a running node, in their order: keys that it
        takes, also with their current value. Unknown keys are left out, and keys that need a
        restart but have the given value already. Raises PropertiesError for other keys that need a
        restart. Values are not checked."""
        kept: list[Property] = []
        fixed: list[str] = []
        in_force = self.values_as_text()
        for item in properties:
            if self.accepts_change(item.key):
                kept.append(item)
            elif self.has_key(item.key) and in_force.get(item.key) != item.value.strip():
                fixed.append(item.key)
        if fixed:
            raise PropertiesError(self._restart_needed(fixed))
        return kept

    def _restart_needed(self, keys: list[str]) -> str:
        """Return the error text about keys that cannot change while the node runs."""
        return (
            f"{', '.join(keys)} cannot change while {self.NODE} runs: set it in its file and"
            " restart"
        )

    def _set_values(self, changed: Mapping[str, Mapping[str, object]]) -> None:
        """Set attributes by section; "" is this object, else the section's frozen dataclass is
        replaced. Raises ConfigError."""
        for section, values in changed.items():
            if not section:
                for attribute, value in values.items():
                    setattr(self, attribute, value)
                continue
            try:
                setattr(self, section, replace(getattr(self, section), **values))
            except StoreError as error:
                raise ConfigError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Table:
    """The keys of a configuration's class by name, and the names of keys by alias."""

    keys: Mapping[str, Declared]
    aliases: Mapping[str, str]


_TABLES: Final[dict[type, _Table]] = {}
"""Tables by class, built once, because the same classes are queried repeatedly."""


def declared_keys(kind: type[NodeConfig]) -> Mapping[str, Declared]:
    """Every key with an effect on nodes of class `kind`, by name, without aliases and keys of TLS;
    the same mapping for each call."""
    return _key_table(kind).keys


def _keys_by_alias(kind: type[NodeConfig]) -> Mapping[str, str]:
    """Return the names of a configuration's keys by alias."""
    return _key_table(kind).aliases


def _key_table(kind: type[NodeConfig]) -> _Table:
    """Return the keys of a class of configurations, collected once."""
    if kind not in _TABLES:
        found = [Declared("", name, key) for name, key in keys_of(kind).items()]
        for attribute, section in sections_of(kind).items():
            found += [Declared(attribute, name, key) for name, key in keys_of(section).items()]
        keys = {one.key.name: one for one in found}
        assert len(keys) == len(found), "a key is declared_keys twice"
        assert keys.keys().isdisjoint(kind.IDLE), "a key that does something is among the idle ones"
        named = [*(one.key for one in found), *kind.TLS.values()]
        _TABLES[kind] = _Table(keys, {alias: key.name for key in named for alias in key.aliases})
    return _TABLES[kind]


def _unknown_warning(key: str) -> str:
    """Return the warning about an unknown key, the key cut and printable."""
    return f"unknown key {escape_unprintable(key[:MAX_KEY_SHOWN])}"


def _parse(key: Key, item: Property) -> object:
    """Return the value of a property as the key's type. Raises ConfigError."""
    try:
        return key.kind.parse(item.value.strip())
    except ConfigError as error:
        raise ConfigError(f"{error}{line_suffix(item)}") from None
    except ValueError as error:
        raise ConfigError(
            f"{printable_property(item)}: expected {error}{line_suffix(item)}"
        ) from None

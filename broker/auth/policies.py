"""Policies: which user may do which action on which resource from where (RocketMQ's ACL 2.0).

Owns resources, entries and policies with their texts, and the decision about a need. It must never
know a request code, a user's secret or a file.

The decision is RocketMQ 5.5.0's: of the entries that match resource, action and address
the most specific one decides, and a tie is a denial. Entries of the Default policy count only if no
entry of the Custom policy matches.
"""

import ipaddress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from turbopump.net.wire.bodies import as_object, as_text, read_list, read_text

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NAME_MAX: Final = 255
"""Maximum characters of a user's name, and of the name of a resource."""
USER_PREFIX: Final = "User:"
"""Prefix of a subject: `User:name`. There are no other subjects."""


class BadPolicy(ValueError):
    """A policy that is refused; the text is RocketMQ's where it has one."""


class ResourceType(Enum):
    """Type of a resource; the value is its name in texts. ANY matches every type."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"

    __hash__ = object.__hash__  # in C: decisions look members up


class Pattern(Enum):
    """Comparison of an entry's name; the value is its rank, the lower the more specific."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(Enum):
    """An action on a resource; the value is its name in texts. ALL is for entries only, and matches
    every action."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"

    __hash__ = object.__hash__


class PolicyDecision(Enum):
    """Effect of an entry; the value is its name in texts."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(Enum):
    """Type of a policy; the value is its name in texts. A user has at most one of each type."""

    CUSTOM = "Custom"
    DEFAULT = "Default"

    __hash__ = object.__hash__


_TYPES: Final = {one.value.lower(): one for one in ResourceType}
_ACTIONS: Final = {one.value.lower(): one for one in Action}
_DECISIONS: Final = {one.value.lower(): one for one in PolicyDecision}
_POLICY_TYPES: Final = {one.value.lower(): one for one in PolicyType}


class Need(NamedTuple):
    """A resource that a request uses; one of the actions must be allowed on it."""

    type: ResourceType
    name: str
    actions: frozenset[Action]

    def __str__(self) -> str:
        return f"{self.type.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource of an entry. `name` is empty for the pattern ANY, and the prefix without its
    star for PREFIXED."""

    type: ResourceType
    pattern: Pattern
    name: str = ""

    @classmethod
    def parse(cls, key: str) -> "Resource":
        """Parse `Topic:name`, `Topic:prefix*`, `Topic:*` or `*`; the type's letters may have any
        case. Raises BadPolicy.

        Stricter than RocketMQ, which stores `Any:x` as `*` and cuts a prefix at its first star:
        both would allow more than the text names.
        """
        if key == "*":
            return cls(ResourceType.ANY, Pattern.ANY)
        kind, _, name = key.partition(":")
        found = _TYPES.get(kind.strip().lower())
        if found is None:
            raise BadPolicy("The resource is null.")
        if len(name) > NAME_MAX or not name.isprintable():
            raise BadPolicy(f"The resource has over {NAME_MAX} characters or unprintable ones.")
        if name == "*":
            return cls(found, Pattern.ANY)
        if found is ResourceType.ANY:
            raise BadPolicy("The resource of type Any has no name but *.")
        if not name.endswith("*"):
            return cls(found, Pattern.LITERAL, name)
        if name.count("*") > 1:
            raise BadPolicy("The resource has more than one *.")
        return cls(found, Pattern.PREFIXED, name[:-1])

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type.value}:{self.name}{star}"

    def matches(self, need: Need) -> bool:
        """Whether the need's resource is this one, or one of these."""
        if self.type is not ResourceType.ANY and self.type is not need.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == need.name
        return self.pattern is Pattern.ANY or need.name.startswith(self.name)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """An entry of a policy. `actions` are in the order of the request; `source_ips` are the texts,
    `networks` the same parsed; both are empty for an entry that holds everywhere."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: PolicyDecision
    source_ips: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    def matches(self, need: Need, address: Address | None) -> bool:
        """Whether the entry applies to the need of a request from `address`; an unknown address
        (None) is in no network."""
        if not self.resource.matches(need):
            return False
        if Action.ALL not in self.actions and need.actions.isdisjoint(self.actions):
            return False
        if not self.networks:
            return True
        return address is not None and any(address in network for network in self.networks)

    def to_json(self) -> dict[str, Any]:
        """Convert to RocketMQ's PolicyEntryInfo."""
        return {
            "actions": [action.value for action in self.actions],
            "decision": self.decision.value,
            "resource": str(self.resource),
            "sourceIps": list(self.source_ips) or None,
        }


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """Return the order of an entry among the matching ones: the smallest decides."""
    resource = entry.resource
    length = len(resource.name) if resource.pattern is Pattern.PREFIXED else 0
    is_any = resource.type is ResourceType.ANY
    return is_any, resource.pattern.value, -length, entry.decision is PolicyDecision.ALLOW


Policies = dict[PolicyType, tuple[PolicyEntry, ...]]
"""The entries of a user's policies, in the order of their making."""


@dataclass(frozen=True)
class Acl:
    """The policies of a user."""

    policies: Policies = field(default_factory=dict)

    @cached_property
    def _literals(self) -> dict[PolicyType, dict[tuple[ResourceType, str], list[PolicyEntry]]]:
        """The entries with a literal resource, by type and name."""
        found: dict[PolicyType, dict[tuple[ResourceType, str], list[PolicyEntry]]] = {}
        for kind, entries in self.policies.items():
            table = found.setdefault(kind, {})
            for entry in entries:
                if entry.resource.pattern is Pattern.LITERAL:
                    key = entry.resource.type, entry.resource.name
                    table.setdefault(key, []).append(entry)
        return found

    @cached_property
    def _others(self) -> dict[PolicyType, list[PolicyEntry]]:
        """The entries with a prefix or a star."""
        return {
            kind: [one for one in entries if one.resource.pattern is not Pattern.LITERAL]
            for kind, entries in self.policies.items()
        }

    def decide(self, need: Need, address: Address | None) -> PolicyDecision | None:
        """Return the decision about a need of a request from `address`; None: no entry matches,
        which is a denial, too."""
        for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
            if kind not in self.policies:
                continue
            literals = self._literals[kind].get((need.type, need.name), [])
            matching = [
                entry for entry in (*literals, *self._others[kind]) if entry.matches(need, address)
            ]
            if matching:
                return min(matching, key=_rank).decision
        return None

    def merged(self, changes: Policies) -> "Acl":
        """Return these policies with the entries of `changes`: an entry of the same resource in the
        same policy is replaced, others are added at the end (requests 3006 and 3007)."""
        merged = dict(self.policies)
        for kind, entries in changes.items():
            kept = list(merged.get(kind, ()))
            for entry in entries:
                at = [n for n, one in enumerate(kept) if one.resource == entry.resource]
                if at:
                    kept[at[0]] = entry
                    for extra in reversed(at[1:]):
                        del kept[extra]
                else:
                    kept.append(entry)
            merged[kind] = tuple(kept)
        return Acl(merged)

    def without(self, kind: PolicyType, resource: Resource) -> "Acl | None":
        """Return these policies without the entry of a resource; None if no entry is left. Raises
        KeyError if there is no such entry."""
        kept = tuple(one for one in self.policies.get(kind, ()) if one.resource != resource)
        if len(kept) == len(self.policies.get(kind, ())):
            raise KeyError(str(resource))
        left = {**self.policies, kind: kept}
        left = {kind: entries for kind, entries in left.items() if entries}
        return Acl(left) if left else None

    def to_json(self, containing: str = "") -> list[dict[str, Any]]:
        """Convert to a list of RocketMQ's PolicyInfo, with the entries whose resource text has
        `containing`; a policy without such an entry is left out."""
        listed = []
        for kind, entries in self.policies.items():
            shown = [one.to_json() for one in entries if containing in str(one.resource)]
            if shown:
                listed.append({"entries": shown, "policyType": kind.value})
        return listed


def read_policies(value: Any) -> Policies:
    """Read a list of RocketMQ's PolicyInfo; a policy without type is Custom. Raises BadPolicy or
    BadBody, also without a policy."""
    found: Policies = {}
    for members in read_list({"policies": value}, "policies", as_object):
        kind = read_policy_type(read_text(members, "policyType"))
        entries = read_list(members, "entries", _read_entry)
        if not entries:
            raise BadPolicy("The policy entries is empty.")
        found[kind] = (*found.get(kind, ()), *entries)
    if not found:
        raise BadPolicy("The policies is empty.")
    return found


def read_policy_type(name: str) -> PolicyType:
    """Read the type of a policy; an empty text is Custom. Raises BadPolicy."""
    kind = _POLICY_TYPES.get(name.lower() or "custom")
    if kind is None:
        raise BadPolicy("The policy type is illegal.")
    return kind


def _read_entry(value: Any) -> PolicyEntry:
    """Read a PolicyEntryInfo. Raises BadPolicy, BadBody."""
    members = as_object(value)
    resource = Resource.parse(read_text(members, "resource").strip())
    named = [name.strip().lower() for name in read_list(members, "actions", as_text)]
    if "any" in named:
        raise BadPolicy("The actions can not be Any.")
    actions = tuple(dict.fromkeys(_ACTIONS[name] for name in named if name in _ACTIONS))
    if not actions:
        raise BadPolicy("The actions is empty.")
    decision = _DECISIONS.get(read_text(members, "decision").lower())
    if decision is None:
        raise BadPolicy("The decision is null or illegal.")
    texts = tuple(name.strip() for name in read_list(members, "sourceIps", as_text))
    return PolicyEntry(resource, actions, decision, texts, tuple(map(_read_network, texts)))


def _read_network(source: str) -> Network:
    """Parse an address or a network as `10.0.0.0/8`. Raises BadPolicy."""
    try:
        return ipaddress.ip_network(source, strict=False)
    except ValueError:
        raise BadPolicy("The source ip is invalid.") from None


@lru_cache(1_024)
def read_address(host: str) -> Address | None:
    """Parse the address of a peer; an IPv4 address in IPv6 form is returned as IPv4. None for a
    text that is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def read_subject(subject: str) -> str:
    """Return the user's name in `User:name`. Raises BadPolicy."""
    kind, _, name = subject.partition(":")
    if kind.strip().lower() != "user" or not name.strip():
        raise BadPolicy("The subject is null.")
    return name

"""Kinds of values that only keys of brokers have.

Owns the parsing of their texts and the errors for invalid texts: each Kind's `parse` raises
ValueError with the expected values. It must never know a key.

Tests: tests/unit/broker/config/test_config.py
"""

import re
from enum import Enum
from typing import Final

from turbopump.engine.keys import NAME_SERVERS, Kind
from turbopump.net.allocation.shares import MachineRooms
from turbopump.net.allocation.strategies import is_strategy

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"(\d{1,9})([smhd])")
_MAX_DELAY_LEVELS: Final = 64
"""Maximum delay levels, each with a queue of SCHEDULE_TOPIC_XXXX; RocketMQ's default has 18."""
_MAX_ROOM_PREFIXES: Final = 200
"""Maximum prefixes; each is compared with each member and broker of a group."""


class MetricsExporterType(Enum):
    """Destination of metrics; RocketMQ's names and numbers. OTLP_GRPC and LOG are refused."""

    DISABLE = 0
    """No metrics are served."""
    OTLP_GRPC = 1
    PROM = 2
    """Metrics are served over HTTP for Prometheus."""
    LOG = 3


def parse_delay_levels(text: str) -> list[int]:
    """Parse `1s 5s 1m` to the delays in ms, [1000, 5000, 60000], of levels 1, 2, 3 (units s, m, h,
    d; at most 64 levels). Raises ValueError."""
    parts = text.split()
    if not 1 <= len(parts) <= _MAX_DELAY_LEVELS:
        raise ValueError(f"1 to {_MAX_DELAY_LEVELS} delays")
    matches = [_DELAY.fullmatch(part) for part in parts]
    if not all(matches):
        raise ValueError("delays such as 1s 5m 2h 1d, separated by blanks")
    return [int(match[1]) * _UNIT_MS[match[2]] for match in matches if match]


def _parse_name(value: str) -> str:
    """Check the name of a cluster or broker; raises ValueError."""
    if not re.fullmatch(r"[%|a-zA-Z0-9_.-]{1,127}", value) or not value.strip("."):
        raise ValueError("1 to 127 letters, digits and % | _ - ., not dots alone")
    return value


def _parse_address(value: str) -> str:
    """Parse at most one `host:port`; "" for an empty text. Raises ValueError."""
    found = NAME_SERVERS.parse(value)
    if len(found) > 1:
        raise ValueError("one host:port")
    return found[0] if found else ""


def _parse_metrics_exporter(value: str) -> MetricsExporterType:
    """Parse DISABLE or PROM, by name or number; raises ValueError."""
    for kind in (MetricsExporterType.DISABLE, MetricsExporterType.PROM):
        if value in (kind.name, str(kind.value)):
            return kind
    raise ValueError("DISABLE or PROM (metrics are not sent anywhere yet)")


def _check_delay_levels(value: str) -> str:
    """Check delay levels, and return their text unchanged; raises ValueError."""
    parse_delay_levels(value)
    return value


def _one_of(*words: str) -> Kind[str]:
    """Make the Kind that accepts only these words."""
    expected = " or ".join(words)

    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(expected)
        return value

    return Kind(expected, parse)


def _check_strategy(value: str) -> str:
    """Check the name of an allocation strategy, or ""; raises ValueError."""
    if value and not is_strategy(value):
        raise ValueError("a strategy as AVG or STICKY, or nothing")
    return value


def _parse_machine_rooms(value: str) -> MachineRooms:
    """Parse `room:prefix,prefix;room:prefix` to the rooms of clients and brokers by prefix; raises
    ValueError."""
    pairs = []
    for part in filter(None, (part.strip() for part in value.split(";"))):
        room, _, prefixes = part.partition(":")
        found = [prefix.strip() for prefix in prefixes.split(",") if prefix.strip()]
        if not room.strip() or not found:
            raise ValueError("room:prefix,prefix of clients and brokers, rooms separated by ;")
        pairs += [(prefix, room.strip()) for prefix in found]
    if len(pairs) > _MAX_ROOM_PREFIXES:
        raise ValueError(f"at most {_MAX_ROOM_PREFIXES} prefixes")
    return MachineRooms(tuple(pairs))


NAME: Final = Kind("1 to 127 letters, digits and % | _ - .", _parse_name)
"""Name of a broker, cluster or topic; a str."""
ADDRESS: Final = Kind("host:port", _parse_address)
"""Text `host:port`, or "" without an address; a str."""
CONTROLLERS: Final = Kind(
    NAME_SERVERS.expected, lambda value: tuple(NAME_SERVERS.parse(value)), ";".join
)
"""Addresses `host:port` separated by ;, as a tuple."""
METRICS: Final = Kind("DISABLE or PROM", _parse_metrics_exporter, lambda kind: kind.name)
"""Name or number of a MetricsExporterType."""
DELAYS: Final = Kind(f"1 to {_MAX_DELAY_LEVELS} delays such as 1s 5m 2h 1d", _check_delay_levels)
"""Text that `parse_delay_levels` accepts; it stays a str."""
REQUEST_MODE: Final = _one_of("PULL", "POP")
"""PULL or POP, a str."""
REBALANCE_MODE: Final = _one_of("BROKER", "CLIENT")
"""BROKER or CLIENT, a str."""
STRATEGY: Final = Kind("a strategy as AVG or STICKY, or nothing", _check_strategy)
"""Name of an allocation strategy, or "" for the consumers' own; a str."""
ROOMS: Final = Kind("room:prefix,prefix, rooms separated by ;", _parse_machine_rooms)
"""Machine rooms as `room:prefix,prefix;room:prefix`, parsed to MachineRooms."""

"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x.

Owns the public names. It must never import anything at import time: commands, test runs and
programs pay only for the part they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.cluster import Cluster
    from turbopump.net.client.admin import Admin
    from turbopump.net.client.consumer import Consumer
    from turbopump.net.client.messages import Message
    from turbopump.net.client.producer import Producer

__all__ = ["Admin", "Cluster", "Consumer", "Message", "Producer"]

_HOMES = {
    "Admin": "turbopump.net.client.admin",
    "Cluster": "turbopump.cluster",
    "Consumer": "turbopump.net.client.consumer",
    "Message": "turbopump.net.client.messages",
    "Producer": "turbopump.net.client.producer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

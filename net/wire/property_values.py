"""Values of properties: from text to what a configuration holds, and back.

Owns the parsers that several nodes' keys share, the keys of TLS and of Netty, and what it means
that a key of RocketMQ does nothing here. It must never know which node has which key. Called by the
nodes' config modules.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.java_properties import Property, printable

INT32_MAX: Final = 2**31 - 1

SERVER_TLS_KEYS: Final = frozenset(
    {
        "tls.server.mode",
        "tls.server.need.client.auth",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.certPath",
        "tls.server.authClient",
        "tls.server.trustCertPath",
        "tls.test.mode.enable",
    }
)

CLIENT_TLS_KEYS: Final = frozenset(
    {
        "tls.enable",
        "tls.client.certPath",
        "tls.client.keyPath",
        "tls.client.keyPassword",
        "tls.client.trustCertPath",
        "tls.client.authServer",
    }
)

_SECRET_KEYS: Final = frozenset(
    {"initAuthenticationUser", "metricsGrpcExporterHeader", "socksProxyConfig"}
)
_SECRET_WORDS: Final = ("password", "credential", "secretkey", "accesskey")

MAX_VALUE_SHOWN: Final = 100
"""Characters of a value repeated in a message."""

Parse = Callable[[str], object]
"""A value of its text; raises ValueError with what was expected."""


def is_secret(key: str) -> bool:
    """Whether the value is a credential: no answer to a peer, no log and no message shows it."""
    return key in _SECRET_KEYS or any(word in key.lower() for word in _SECRET_WORDS)


def shown(item: Property) -> str:
    """`key=value` for a message; of a credential the key alone."""
    if is_secret(item.key):
        return item.key
    return f"{item.key}={item.value[:MAX_VALUE_SHOWN]}"


def place(item: Property) -> str:
    """Where the property is, for the end of a message."""
    return f" (line {item.line})" if item.line else ""


@dataclass(frozen=True, slots=True)
class IdleKey:
    """A key of RocketMQ's that does nothing here."""

    kind: str
    """Its Java type."""
    default: str | None
    """RocketMQ's; None where that is null."""
    here: str
    """The value that says what is done here anyway; mostly the default."""
    harm: str = ""
    """Why a value that asks for something else is refused; empty: it is named, and does nothing."""

    def is_quiet(self, value: str) -> bool:
        """Whether a value asks for nothing but what is done anyway, or what RocketMQ does without
        the key."""
        asked = self._normal(value.strip())
        return asked in ("", self._normal(self.here), self._normal(self.default or ""))

    def refusal(self, item: Property) -> str:
        """Why its value cannot be taken, as a sentence; empty if it can."""
        if not self.harm or self.is_quiet(item.value):
            return ""
        only = f", only {self.here}" if self.here else ""
        return f"{shown(item)}: not supported yet{only} ({self.harm}){place(item)}"

    def _normal(self, value: str) -> str:
        if self.kind == "boolean":
            return value.lower()
        try:
            return value if self.kind == "String" else str(float(value))
        except ValueError:
            return value


def idle_keys(lines: str) -> dict[str, IdleKey]:
    """A table of lines `key type default`, with `here VALUE` or `refused REASON` behind them; the
    default `-` is null, `''` the empty text."""
    found: dict[str, IdleKey] = {}
    for line in lines.split("\n"):
        if not line.strip():
            continue
        key, kind, given, *rest = line.split(maxsplit=4)
        default = {"-": None, "''": ""}.get(given, given)
        here = rest[1] if rest[:1] == ["here"] else default or ""
        harm = rest[1] if rest[:1] == ["refused"] else ""
        assert key not in found, f"{key} is there twice"
        found[key] = IdleKey(kind, default, here, harm)
    return found


def idle_values(keys: Mapping[str, IdleKey], given: Mapping[str, str]) -> dict[str, str]:
    """What is shown of idle keys: what was given, or is done anyway; not what is null in RocketMQ,
    and no credentials."""
    found = {key: known.here for key, known in keys.items() if known.default is not None}
    found.update(given)
    return {key: value for key, value in found.items() if not is_secret(key)}


def without_effect(items: Iterable[Property]) -> list[str]:
    """One sentence for all that were given in vain; none if nothing was."""
    named = ", ".join(shown(item) + place(item) for item in items)
    return [printable(f"known, but without effect here: {named}")] if named else []


NETTY_SERVER_KEYS: Final = idle_keys(
    """
    enableShutdownGracefully boolean false
    serverAsyncSemaphoreValue int 64
    serverCallbackExecutorThreads int 0
    serverNettyWorkerGroupEnable boolean true
    serverOnewaySemaphoreValue int 256
    serverPooledByteBufAllocatorEnable boolean true
    serverSelectorThreads int 3
    serverSocketBacklog int 1024
    serverSocketRcvBufSize int 0
    serverSocketSndBufSize int 0
    serverWorkerThreads int 8
    shutdownWaitTimeSeconds int 30
    useEpollNativeSelector boolean false
    writeBufferHighWaterMark int 0
    writeBufferLowWaterMark int 0
    """
)
"""NettyServerConfig of 5.5.0, without the keys that are honoured: one loop thread has nothing to do
with the others."""

NETTY_CLIENT_KEYS: Final = idle_keys(
    """
    channelNotActiveInterval long 60000
    clientAsyncSemaphoreValue int 65535
    clientCallbackExecutorThreads int 2
    clientChannelMaxIdleTimeSeconds int 120
    clientCloseSocketIfTimeout boolean true
    clientOnewaySemaphoreValue int 65535
    clientPooledByteBufAllocatorEnable boolean false
    clientSocketRcvBufSize int 0
    clientSocketSndBufSize int 0
    clientWorkerThreads int 4
    connectTimeoutMillis int 3000
    disableCallbackExecutor boolean false
    disableNettyWorkerGroup boolean false
    enableReconnectForGoAway boolean true
    isScanAvailableNameSrv boolean true
    maxReconnectIntervalTimeSeconds long 60
    scanAvailableNameSrv boolean true
    socksProxyConfig String {} refused connections go out without a proxy here
    writeBufferHighWaterMark int 0
    writeBufferLowWaterMark int 0
    """
)
"""NettyClientConfig of 5.5.0 but useTLS."""


def text(value: str) -> str:
    """Any text."""
    return value


def boolean(value: str) -> bool:
    """`true` or `false`, in any case, as Java reads them; raises ValueError for anything else."""
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def between(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers within the limits, which are in its ValueError."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"-?\d{1,19}", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def show(value: object) -> str:
    """A value as RocketMQ writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Keys of RocketMQ without effect here, and the texts about their values.

Owns the tables of Netty's keys, which all nodes have, and the choice of credentials. It
must never know which node has which key.

Tests: tests/unit/net/config/test_node_config.py, tests/unit/broker/config/test_config.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.java_properties import Property, escape_unprintable

_SECRET_KEYS: Final = frozenset(
    {"initAuthenticationUser", "metricsGrpcExporterHeader", "socksProxyConfig"}
)
_SECRET_WORDS: Final = ("password", "credential", "secretkey", "accesskey")

MAX_VALUE_SHOWN: Final = 100
"""Maximum characters of a value in a message."""


def is_secret(key: str) -> bool:
    """Whether the value of `key` is a credential, by the key's name: it must not be shown in
    responses, logs and messages."""
    return key in _SECRET_KEYS or any(word in key.lower() for word in _SECRET_WORDS)


def printable_property(item: Property) -> str:
    """`key=value` for a message, the value cut to MAX_VALUE_SHOWN characters; for a credential only
    the key."""
    if is_secret(item.key):
        return item.key
    return f"{item.key}={item.value[:MAX_VALUE_SHOWN]}"


def line_suffix(item: Property) -> str:
    """` (line 7)` for the end of a message about a property; empty if it is from no file."""
    return f" (line {item.line})" if item.line else ""


@dataclass(frozen=True, slots=True)
class IdleKey:
    """A key of RocketMQ without effect here."""

    kind: str
    """Java type of the value, such as int."""
    default: str | None
    """Default in RocketMQ as text; None for null."""
    here: str
    """The value that describes the behaviour here; mostly RocketMQ's default."""
    harm: str = ""
    """Reason to refuse another value than `here`; empty: another value is accepted, with a
    warning."""

    def is_quiet(self, value: str) -> bool:
        """Whether a value needs no warning: it is empty, `here` or the default, in any spelling of
        the type."""
        asked = self._normalize(value.strip())
        return asked in ("", self._normalize(self.here), self._normalize(self.default or ""))

    def reason_to_refuse(self, item: Property) -> str:
        """The sentence with which a property is refused, because of `harm`; empty if it is
        accepted."""
        if not self.harm or self.is_quiet(item.value):
            return ""
        only = f", only {self.here}" if self.here else ""
        return (
            f"{printable_property(item)}: not supported yet{only} ({self.harm}){line_suffix(item)}"
        )

    def _normalize(self, value: str) -> str:
        """Return the value in the spelling that equal values of the key's type share."""
        if self.kind == "boolean":
            return value.lower()
        try:
            return value if self.kind == "String" else str(float(value))
        except ValueError:
            return value


def idle_keys(lines: str) -> dict[str, IdleKey]:
    """Parse a table of lines `key type default`, optionally followed by `here VALUE` or `refused
    REASON`, to IdleKeys by key; the default `-` is null, `''` the empty text."""
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
    """Values of `keys` to show, by key: the given value, else `IdleKey.here`; without keys that are
    null in RocketMQ and not given, and without credentials."""
    found = {key: known.here for key, known in keys.items() if known.default is not None}
    found.update(given)
    return {key: value for key, value in found.items() if not is_secret(key)}


def without_effect(items: Iterable[Property]) -> list[str]:
    """A list with one warning that names all given properties; empty without properties."""
    named = ", ".join(printable_property(item) + line_suffix(item) for item in items)
    return [escape_unprintable(f"known, but without effect here: {named}")] if named else []


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
"""Keys of NettyServerConfig in 5.5.0 without effect, by name: a single loop thread does not need
them."""

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
"""Keys of NettyClientConfig in 5.5.0 without effect, by name; useTLS has an effect and is
missing."""

"""Limits and settings of servers and clients, each with its reason.

Owns the numbers and the keys of TLS. It must never read a file; nodes fill it from their
configuration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from turbopump.engine.keys import BOOLEAN, TEXT, Key, enum_kind, key, keys_of
from turbopump.net.wire.command import FRAME_MAX, Command

MIB: Final = 1 << 20
"""Bytes of a mebibyte."""


class TlsMode(Enum):
    """The kinds of peers that a server's port accepts (RocketMQ: TlsMode)."""

    DISABLED = "disabled"
    """Plain peers only."""
    PERMISSIVE = "permissive"
    """TLS and plain peers, distinguished by their first byte."""
    ENFORCING = "enforcing"
    """TLS peers only."""


class ClientAuth(Enum):
    """Whether a TLS server asks for a client's certificate; without effect unless
    `TlsSettings.auth_client`."""

    NONE = "none"
    """The server asks for no certificate."""
    OPTIONAL = "optional"
    """A client may connect without a certificate; a certificate that it sends is checked."""
    REQUIRE = "require"
    """The handshake fails without a certificate that passes the check."""


def _test_mode() -> bool:
    """Return the key tls.test.mode.enable, which servers and clients share."""
    return key(
        "tls.test.mode.enable",
        BOOLEAN,
        True,
        "A server makes a certificate of its own where it has none, a client trusts any server.",
    )


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of a server (RocketMQ: TlsSystemConfig). Without certificate and key files it uses a
    self-signed certificate in test mode; outside test mode no context can be made."""

    mode: TlsMode = key(
        "tls.server.mode",
        enum_kind(TlsMode),
        TlsMode.PERMISSIVE,
        "Whether clients may, must or must not use TLS on the port.",
    )
    cert_path: str = key("tls.server.certPath", TEXT, "", "The certificate, a PEM file.")
    key_path: str = key("tls.server.keyPath", TEXT, "", "The key of the certificate, a PEM file.")
    key_password: str = key(
        "tls.server.keyPassword", TEXT, "", "The password of the key; never shown."
    )
    trust_cert_path: str = key(
        "tls.server.trustCertPath", TEXT, "", "The certificates that clients are checked against."
    )
    need_client_auth: ClientAuth = key(
        "tls.server.need.client.auth",
        enum_kind(ClientAuth),
        ClientAuth.NONE,
        "Whether a client is asked for a certificate.",
    )
    auth_client: bool = key(
        "tls.server.authClient", BOOLEAN, False, "Check a client's certificate."
    )
    test_mode: bool = _test_mode()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "TlsSettings":
        """Make the settings from the texts of `tls.server.*` and `tls.test.mode.enable`; other keys
        are ignored, missing keys have their default. Raises ValueError naming the key."""
        return cls(**_read_attributes(cls, properties))


@dataclass(frozen=True, slots=True)
class ClientTlsSettings:
    """TLS of a client. In test mode, or unless `auth_server`, any server is trusted; host names are
    never compared."""

    cert_path: str = key("tls.client.certPath", TEXT, "", "The certificate, a PEM file.")
    key_path: str = key("tls.client.keyPath", TEXT, "", "The key of the certificate, a PEM file.")
    key_password: str = key(
        "tls.client.keyPassword", TEXT, "", "The password of the key; never shown."
    )
    trust_cert_path: str = key(
        "tls.client.trustCertPath", TEXT, "", "The certificates that servers are checked against."
    )
    auth_server: bool = key(
        "tls.client.authServer", BOOLEAN, False, "Check a server's certificate."
    )
    test_mode: bool = _test_mode()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "ClientTlsSettings | None":
        """Make the settings from the texts of `tls.client.*` and `tls.test.mode.enable`; None
        unless tls.enable is true: the client connects without TLS. Raises ValueError naming the
        key."""
        given = _read_attributes(cls, properties)
        return cls(**given) if _read_value(ENABLE, properties) else None


ENABLE: Final = Key(
    "tls.enable",
    BOOLEAN,
    False,
    "Connect to other nodes by TLS.",
    aliases=("useTLS",),
)
"""The key whose value true makes a node's clients use TLS."""
SERVER_TLS_KEYS: Final = {one.name: one for one in keys_of(TlsSettings).values()}
"""Keys of TlsSettings by RocketMQ's name."""
CLIENT_TLS_KEYS: Final = {one.name: one for one in (ENABLE, *keys_of(ClientTlsSettings).values())}
"""`tls.enable` and the keys of ClientTlsSettings by RocketMQ's name."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Limits of every connection, whichever side opened it.

    idle_timeout_ms: time without traffic after which a connection is closed (RocketMQ:
        serverChannelMaxIdleTimeSeconds, 120 s).
    frame_timeout_ms: from the first to the last byte of a frame, and for a TLS handshake; a peer
        that trickles is cut, 4 MB at 140 KB/s is not.
    close_timeout_ms: time for the peer of a closing connection to read the unsent bytes.
    max_frame: maximum bytes of a frame (com.rocketmq.remoting.frameMaxLength).
    max_in_flight: requests of a peer without an answer; long polls count, a consumer holds one per
        queue. Reading from the peer pauses there.
    write_high_water, write_low_water: unsent bytes above which a server does not read from the
        peer and calls of a client wait, and below which they continue; a pull answer is up to
        256 KiB.
    write_max: unsent bytes at which the peer is cut: answers to held pulls come although reading
        has paused. It exceeds the high-water mark plus the largest frame.
    receive_max: bytes of incomplete frames of all connections together; beyond it the oldest frame
        is cut. Eight of the largest frames at once are rare, and a process stays small.
    receive_max_of_address: the same for the connections of an address.
    unsent_max: unsent bytes of all connections together: thousands of connections below write_max
        would be thousands of times that. Beyond it the connections are cut that keep the most bytes
        for the longest time.
    """

    idle_timeout_ms: int = 120_000
    frame_timeout_ms: int = 30_000
    close_timeout_ms: int = 5_000
    max_frame: int = FRAME_MAX
    max_in_flight: int = 16_384
    write_high_water: int = 4 * MIB
    write_low_water: int = MIB
    write_max: int = 64 * MIB
    receive_max: int = 160 * MIB
    receive_max_of_address: int = 128 * MIB
    unsent_max: int = 512 * MIB


@dataclass(frozen=True, slots=True)
class ServerOptions(ConnectionOptions):
    """Limits of a server, besides the other fields of ConnectionOptions.

    The marks of unsent bytes are low: bytes that thousands of peers do not read take the server's
    memory, and the kernel keeps megabytes of each besides.

    max_connections: also bounded by the process's limit of open files at start, which the
        servers in the process divide. Beyond it a peer's first request is answered SYSTEM_BUSY
        and the connection closed.
    backlog: connections that the kernel accepts before the server does (RocketMQ: so_backlog).
    stop_grace_ms: time for requests in flight when the server stops.
    tls: None: peers that begin a TLS handshake are closed.
    """

    write_high_water: int = MIB
    write_low_water: int = MIB // 4
    write_max: int = 32 * MIB
    unsent_max: int = 128 * MIB
    max_connections: int = 16_384
    backlog: int = 1024
    stop_grace_ms: int = 300
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True)
class RemotingOptions(ConnectionOptions):
    """Limits of a client.

    connect_timeout_ms: longest time for the TCP connection and the TLS handshake together
        (com.rocketmq.remoting.client.connect.timeout).
    max_in_flight: bounds both a server's unanswered requests and the calls to a server
        (clientAsyncSemaphoreValue).
    tls: None: connections are plain.
    sign: sets the fields that sign a request, the last change before it is sent; None: requests
        are sent unsigned.
    """

    max_in_flight: int = 65_535
    connect_timeout_ms: int = 3_000
    tls: ClientTlsSettings | None = None
    sign: Callable[[Command], None] | None = None


def _read_attributes(kind: type, properties: Mapping[str, str]) -> dict[str, Any]:
    """Read the attributes of the settings class `kind` from properties; raises ValueError naming
    the key."""
    return {attribute: _read_value(one, properties) for attribute, one in keys_of(kind).items()}


def _read_value(one: Key, properties: Mapping[str, str]) -> Any:
    """Return the value of a key: parsed from the properties, or its default. Raises ValueError
    naming the key."""
    given = properties.get(one.name)
    if given is None:
        return one.default
    try:
        return one.kind.parse(given.strip())
    except ValueError as error:
        raise ValueError(f"{one.name} is {given!r}, not {error}") from None

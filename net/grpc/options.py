"""Limits of a gRPC server, each with its reason.

Owns the numbers alone; nodes override those in their configuration.

Tests: tests/unit/net/grpc/test_connection.py
"""

from dataclasses import dataclass

MIB = 1 << 20
"""Bytes of a mebibyte."""


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Limits on the data that a server keeps for its peers.

    message_max: bytes of a message, also decompressed (RocketMQ: bodies of 4 MiB; its proxy
        accepts 130 MiB, which no broker stores).
    metadata_max: bytes of a call's headers as SETTINGS counts them (gRPC's and netty's 8 KiB).
    streams_max: concurrent calls of a connection; calls_max: of all connections.
    stream_window, window: bytes that a peer may send ahead, for a stream and for a connection.
    held_max: bytes of incomplete messages, of all peers; beyond it the calls that add bytes fail.
    message_timeout_ms: from a message's first byte to its last; then its call fails.
    unsent_max: bytes of answers that a peer has not read; beyond it its new calls are refused.
    unsent_total_max: the same for all peers together; beyond it clogged peers begin no new calls,
        and each sweep aborts the connection with the most unsent bytes.
    stall_timeout_ms: longest time in which a peer reads nothing of its unsent bytes.
    breaks_burst, breaks_per_s: streams that may end with an error, at once and permanently
        (nghttp2's own figures since 1.57); a higher rate is the attack that resets its own
        requests.
    idle_timeout_ms: time without a call before a connection is closed (RocketMQ:
        grpcClientIdleTimeMills).
    ping_after_ms, ping_timeout_ms: silence before a PING, and the longest wait for its answer.
    connections_max, backlog: of the port.
    stop_grace_ms: time for calls in progress at a clean stop.
    sweep_ms: interval of the checks of these times; a peer is closed up to sweep_ms late.
    """

    message_max: int = 8 * MIB
    metadata_max: int = 8 << 10
    streams_max: int = 1_000
    calls_max: int = 100_000
    stream_window: int = 256 << 10
    window: int = 4 * MIB
    held_max: int = 128 * MIB
    message_timeout_ms: int = 30_000
    unsent_max: int = 16 * MIB
    unsent_total_max: int = 256 * MIB
    stall_timeout_ms: int = 60_000
    breaks_burst: int = 1_000
    breaks_per_s: int = 33
    idle_timeout_ms: int = 120_000
    ping_after_ms: int = 60_000
    ping_timeout_ms: int = 30_000
    connections_max: int = 65_536
    backlog: int = 1_024
    stop_grace_ms: int = 3_000
    sweep_ms: int = 1_000

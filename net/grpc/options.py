"""Limits of a gRPC server, each with its reason.

Owns the numbers alone. Called by server.py and connection.py; nodes change what their
configuration says.
"""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """What peers may make a server keep.

    message_max: bytes of one message, also unpacked (RocketMQ: bodies of 4 MiB; its proxy takes
        130 MiB, which no broker stores).
    metadata_max: bytes of a call's headers as SETTINGS counts them (gRPC's and netty's 8 KiB).
    streams_max: calls of one connection at once; calls_max: of all.
    stream_window, window: what a peer may send ahead, of one stream and of a connection.
    held_max: bytes of messages that are not complete, of all peers.
    message_timeout_ms: from a message's first byte to its last.
    unsent_max: bytes of answers to one peer that it does not take; beyond it its calls are refused.
    unsent_total_max: of all peers.
    stall_timeout_ms: without taking anything of what is unsent.
    breaks_burst, breaks_per_s: streams that may end broken, at once and for ever (nghttp2's own
        figures since 1.57): more is the attack that resets what it asked for.
    idle_timeout_ms: without a call (RocketMQ: grpcClientIdleTimeMills).
    ping_after_ms, ping_timeout_ms: silence before a PING, and until its answer must be there.
    connections_max, backlog: of the port.
    stop_grace_ms: for calls that are under way at a clean stop.
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

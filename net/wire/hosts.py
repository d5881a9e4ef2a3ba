"""Socket addresses: `ip:port` text and the packed form of records (ip, then int32 port).

Owns both directions for IPv4 and IPv6. It must never resolve a name. Called by the transport, by
message ids and by what shows a host.
"""

import ipaddress
from typing import Final

PACKED_V4_SIZE: Final = 8
PACKED_V6_SIZE: Final = 20


def pack(address: str) -> bytes:
    """`1.2.3.4:80` or `[::1]:80` as 8 or 20 bytes; raises ValueError for anything else."""
    host, port = split(address)
    return pack_ip(host, port)


def pack_ip(host: str, port: int) -> bytes:
    """An ip text and a port packed; an IPv4-mapped IPv6 address counts as IPv4."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if not 0 <= port <= 0x7FFFFFFF:
        raise ValueError(f"{port} is no port")
    return ip.packed + port.to_bytes(4, "big")


def unpack(packed: bytes | bytearray | memoryview) -> str:
    """The `ip:port` text of a packed host; raises ValueError for a wrong length."""
    if len(packed) not in (PACKED_V4_SIZE, PACKED_V6_SIZE):
        raise ValueError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    ip = ipaddress.ip_address(bytes(packed[:-4]))
    return join(str(ip), int.from_bytes(packed[-4:], "big"))


def split(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, brackets of an IPv6 host removed; raises ValueError."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{address!r} is no host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

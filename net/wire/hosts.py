"""Socket addresses: `ip:port` text and the packed form of records (ip, then int32 port).

Owns both directions for IPv4 and IPv6. It must never resolve a name.
"""

import ipaddress
from typing import Final

PACKED_V4_SIZE: Final = 8
"""Bytes of a packed IPv4 host with its port."""
PACKED_V6_SIZE: Final = 20
"""Bytes of a packed IPv6 host with its port."""


def pack_ip(host: str, port: int) -> bytes:
    """Pack an ip text and a port (0 to 2^31 - 1) into 8 or 20 bytes; an IPv4-mapped IPv6 address
    counts as IPv4, a zone (`%eth0`) is dropped. Raises ValueError."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if not 0 <= port <= 0x7FFFFFFF:
        raise ValueError(f"{port} is no port")
    return ip.packed + port.to_bytes(4, "big")


def unpack_host(packed: bytes | bytearray | memoryview) -> str:
    """Convert a packed host to `ip:port`, an IPv6 address in brackets; raises ValueError for a
    wrong length."""
    if len(packed) not in (PACKED_V4_SIZE, PACKED_V6_SIZE):
        raise ValueError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    ip = ipaddress.ip_address(bytes(packed[:-4]))
    return join(str(ip), int.from_bytes(packed[-4:], "big"))


def split_host_port(address: str) -> tuple[str, int]:
    """(host, port) of `host:port`, without the brackets of an IPv6 host. The host may be a name and
    is not checked; raises ValueError unless the port is 0 to 65535."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{address!r} is no host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join(host: str, port: int) -> str:
    """Join to `host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

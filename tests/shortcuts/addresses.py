"""Addresses as records hold them, from text."""

from turbopump.net.wire.hosts import pack_ip, split_host_port


def pack_host(address: str) -> bytes:
    """Pack `1.2.3.4:80` or `[::1]:80` into 8 or 20 bytes; raises ValueError for any other text."""
    return pack_ip(*split_host_port(address))

"""Addresses as text and packed."""

import pytest
from tests.shortcuts.addresses import pack_host

from turbopump.net.wire import hosts


@pytest.mark.parametrize(
    ("address", "packed"),
    [
        ("10.0.0.5:10911", "0a00000500002a9f"),
        ("[::1]:80", "0000000000000000000000000000000100000050"),
        ("::1:80", "0000000000000000000000000000000100000050"),
    ],
)
def test_packed_and_back(address, packed) -> None:
    assert pack_host(address).hex() == packed
    assert pack_host(hosts.unpack_host(bytes.fromhex(packed))).hex() == packed


def test_mapped_addresses_count_as_ipv4() -> None:
    assert hosts.unpack_host(hosts.pack_ip("::ffff:1.2.3.4", 5)) == "1.2.3.4:5"
    assert hosts.unpack_host(hosts.pack_ip("fe80::1%eth0", 5)) == "[fe80::1]:5"


def test_split_and_join() -> None:
    assert hosts.split_host_port(" broker-a.example:10911 ") == ("broker-a.example", 10911)
    assert hosts.split_host_port("[::1]:1") == ("::1", 1)
    assert hosts.join("::1", 1) == "[::1]:1"


@pytest.mark.parametrize(
    "text", ["", "host", ":80", "host:", "host:x", "host:70000", "host:-1", "h:²"]
)
def test_invalid_addresses(text) -> None:
    with pytest.raises(ValueError):
        hosts.split_host_port(text)


def test_values_that_cannot_be_packed() -> None:
    with pytest.raises(ValueError):
        pack_host("host.example:80")
    with pytest.raises(ValueError):
        hosts.pack_ip("1.2.3.4", -1)
    with pytest.raises(ValueError):
        hosts.unpack_host(b"short")

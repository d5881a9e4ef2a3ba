"""Ports that nodes keep: free, in a row, and outside of the range of outgoing connections."""

import socket
from pathlib import Path

import pytest

from turbopump.cli.group import ports

pytestmark = pytest.mark.integration
HOST = "127.0.0.1"


def test_they_are_none_of_the_kernels() -> None:
    first = int(ports.KERNEL_RANGE.read_text().split()[0])
    for _ in range(50):
        port = ports.free_port(HOST, (), 2)
        assert ports.FIRST <= port < port + 1 < first


def test_neither_taken_nor_used_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ports are left to choose from: one is used, one is promised to another node."""
    port = ports.free_port(HOST, (), 5)
    monkeypatch.setattr(ports, "FIRST", port)
    kernel = tmp_path / "range"
    kernel.write_text(f"{port + 4}\t{port + 100}\n")
    monkeypatch.setattr(ports, "KERNEL_RANGE", kernel)
    with socket.create_server((HOST, port)):
        found = {ports.free_port(HOST, (port + 3,), 1) for _ in range(100)}
        assert found == {port + 1, port + 2}
        with pytest.raises(OSError, match="no 3 free ports in a row"):
            ports.free_port(HOST, (port + 3,), 3)


@pytest.mark.parametrize("kernel_range", ["", "1024\t65535\n", None])
def test_the_kernels_where_there_are_no_others(
    kernel_range: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "range"
    if kernel_range is not None:
        kernel.write_text(kernel_range)
    monkeypatch.setattr(ports, "KERNEL_RANGE", kernel)
    assert ports.free_port(HOST, (), 2) > 1_023


def test_a_host_that_is_none_of_this_machine() -> None:
    with pytest.raises(OSError, match="assign"):
        ports.free_port("192.0.2.1", (), 1)

"""Name servers whose addresses are looked up by DNS, repeatedly.

Owns the look-ups (fetchNameSrvAddrByDnsLookup; RocketMQ: updateNameServerAddressListByDnsLookup).
It must never block the loop or empty the list of name servers: a failed look-up leaves the earlier
addresses. Brokers (node.py) and proxies (proxy/names.py) use it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from turbopump.net.wire.hosts import join, split_host_port

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 3.0
"""Longest time in seconds of a look-up of all names; a start waits for one look-up."""


class NamesConfig(Protocol):
    """The part of a node's configuration that a look-up reads and changes."""

    namesrv_addr: list[str]
    """Addresses in use, `host:port`; a look-up puts a new list there."""
    namesrv_names: tuple[str, ...]
    """The operator's names, `host:port`, while look-ups replace them; else empty."""
    fetch_namesrv_addr_by_dns_lookup: bool
    """Whether look-ups are on."""


class NameServerLookup:
    """DNS look-ups of the name servers of one node. Loop thread only. `changed` is called after
    a look-up has changed `config.namesrv_addr`."""

    def __init__(self, config: NamesConfig, changed: Callable[[], None]) -> None:
        self._config, self._changed = config, changed
        self._found: list[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._complained = ""

    def begin_lookup(self) -> None:
        """Begin a look-up in the background, unless a look-up that `begin_lookup` began is
        running."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self.look_up())

    def stop(self) -> None:
        """Cancel the look-up in the background; its result is dropped. No-op without a look-up."""
        if self._task is not None:
            self._task.cancel()

    async def look_up(self) -> None:
        """Look up the names and replace `config.namesrv_addr` by their addresses: in the order of
        the names, sorted for each name, without duplicates. A list that an operator has set since
        the last look-up becomes the names. A failed look-up is logged, and the addresses stay. If
        the key is off, the names are restored."""
        config = self._config
        if not config.fetch_namesrv_addr_by_dns_lookup:
            self._restore_names()
            return
        if config.namesrv_addr is not self._found:  # changed by an operator
            config.namesrv_names = tuple(config.namesrv_addr)
        given, before = config.namesrv_names, config.namesrv_addr
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = [address for name in given for address in await _resolve_addresses(name)]
        except (OSError, UnicodeError, TimeoutError) as error:
            self._log_failure(str(error) or "no answer in time")
            return
        if config.namesrv_addr is not before or not found:
            return
        self._complained = ""
        self._found = list(dict.fromkeys(found))
        is_new = self._found != before
        config.namesrv_addr = self._found
        if is_new:
            logger.info("name servers of %s: %s", ";".join(given), ";".join(self._found))
            self._changed()

    def _restore_names(self) -> None:
        """Restore the given names, because the key was turned off."""
        config, given = self._config, self._config.namesrv_names
        config.namesrv_names = ()
        if given and config.namesrv_addr is self._found:
            config.namesrv_addr = list(given)
            self._changed()
        self._found = None

    def _log_failure(self, why: str) -> None:
        """Log the reason of a failed look-up unless it was logged last."""
        if why != self._complained:
            logger.warning("the look-up of namesrvAddr failed, addresses are unchanged: %s", why)
        self._complained = why


async def _resolve_addresses(name: str) -> list[str]:
    """Resolve `name:port` to `ip:port` of all its hosts, sorted. Raises OSError."""
    host, port = split_host_port(name)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({join(str(info[4][0]), port) for info in found})

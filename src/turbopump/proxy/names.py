"""A proxy's name servers at run time: looked up by DNS, and read again from the proxy's file.

Owns the time of both. A proxy has no port for requests of administrators, so its file is the place
where an operator changes `namesrvAddr`. It must never block the loop or empty the list of name
servers: an unusable file leaves the list as it is.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from turbopump.net.config.name_lookup import NameServerLookup
from turbopump.net.wire.java_properties import PropertiesError
from turbopump.proxy.config import ProxyConfig, read_file

logger = logging.getLogger(__name__)

FILE_MAX: Final = 1 << 20
"""Maximum bytes of the proxy's file; a file with every key has a hundredth of it."""


class FollowedNames:
    """The name servers of a proxy; `changed` is called, on the loop, after `config.namesrv_addr`
    changed."""

    def __init__(self, config: ProxyConfig, changed: Callable[[], None]) -> None:
        self._config, self._changed = config, changed
        self._lookup = NameServerLookup(config, changed)
        self._state: tuple[int, ...] = ()
        """State of the file when it was last read: time, length and inode."""
        self._task: asyncio.Task[None] | None = None
        self._complained = ""

    async def resolve_names(self) -> None:
        """Look the name servers' names up by DNS once, with a time limit, if that is configured; an
        error leaves the list as it is."""
        await self._lookup.look_up()

    def begin_round(self) -> None:
        """Start one reading of the file and one look-up in the background, each unless the previous
        one is still active."""
        if self._config.path and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self.read())
        self._lookup.begin_lookup()

    def stop(self) -> None:
        """Cancel the reading and the look-up in progress."""
        self._lookup.stop()
        if self._task is not None:
            self._task.cancel()

    async def read(self) -> None:
        """Take the name servers' keys from `config.path` if the file has changed; an unusable file
        is logged once and changes nothing."""
        try:
            fresh = await asyncio.to_thread(self._read_changed)
        except (OSError, UnicodeError, PropertiesError) as error:
            self._log_once(str(error))
            return
        if fresh is None:
            return
        if not fresh.namesrv_addr:
            self._log_once("namesrvAddr is missing")
            return
        self._complained = ""
        config = self._config
        config.fetch_namesrv_addr_by_dns_lookup = fresh.fetch_namesrv_addr_by_dns_lookup
        config.fetch_namesrv_addr_interval_ms = fresh.fetch_namesrv_addr_interval_ms
        if fresh.namesrv_addr != config.name_servers:
            before, after = ";".join(config.name_servers), ";".join(fresh.namesrv_addr)
            logger.info("%s: namesrvAddr was %s, is %s", config.path, before, after)
            config.namesrv_names, config.namesrv_addr = (), fresh.namesrv_addr
            self._changed()
        self._lookup.begin_lookup()

    def _read_changed(self) -> ProxyConfig | None:
        """The file's configuration; None if the file is unchanged. Runs on a worker thread.

        Raises OSError, UnicodeError, PropertiesError.
        """
        path = Path(self._config.path)
        status = path.stat()
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        if state == self._state:
            return None
        with path.open("rb") as file:
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise PropertiesError(f"it has more than {FILE_MAX} bytes")
        self._state = state
        fresh = ProxyConfig()
        fresh.update_keys(read_file(data.decode()))
        return fresh

    def _log_once(self, why: str) -> None:
        """Log why the file was not used, unless it is the last logged reason."""
        if why != self._complained:
            logger.warning("%s: the name servers are unchanged: %s", self._config.path, why)
        self._complained = why

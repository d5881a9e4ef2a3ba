"""TLS of a node's ports: the mode for peers (must, may, must not) and the certificate.

Owns the mode, the context and the checks of its files. It must never read a connection.

Tests: tests/integration/transport/test_transport_tls.py
"""

import asyncio
import logging
import ssl
from collections.abc import Sequence

from turbopump.net.transport.hub import ToTls
from turbopump.net.transport.options import TlsMode, TlsSettings
from turbopump.net.transport.tls import server_context
from turbopump.net.transport.tls_context import LOOK_S, TlsContext
from turbopump.net.wire.command import WireError

logger = logging.getLogger(__name__)


class ServerTls:
    """The TLS of a node: all its ports have the same certificate. Loop thread only.

    `settings` None: TLS peers are closed. `protocols` are the names from which a client may choose
    in its handshake (ALPN), the preferred one first.
    """

    def __init__(self, settings: TlsSettings | None, protocols: Sequence[str] = ()) -> None:
        self._settings = settings or TlsSettings(mode=TlsMode.DISABLED)
        self._protocols = tuple(protocols)
        self._context = TlsContext(self._settings, self._make_context)
        self._looking: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Make the context now, on this thread, if every peer must use TLS, or may use it and the
        settings name files; else no-op. Raises TlsError if it cannot be made.

        Without files a certificate is made when the first peer needs it, by a thread: that takes 30
        to 80 ms with the import of its package.
        """
        mode, files = self._settings.mode, self._settings.cert_path or self._settings.key_path
        if mode is TlsMode.ENFORCING or (mode is TlsMode.PERMISSIVE and files):
            self._context.load()

    def start_looking(self) -> None:
        """Begin to check every LOOK_S seconds for renewed certificates, on another thread; no-op
        without files, with TLS disabled, or if it has begun. `stop_looking` ends it."""
        used = self._settings.mode is not TlsMode.DISABLED
        if self._looking is None and used and self._context.has_files:
            self._looking = asyncio.get_running_loop().create_task(self._look_at_files())

    def stop_looking(self) -> None:
        """Stop the checks for renewed certificates; no-op without checks."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def context(self, hello: bool) -> ToTls:
        """The context for a connection, see ToTls; `hello`: whether its first byte begins a TLS
        handshake. Raises WireError for a TLS peer in mode disabled and for a plain peer in mode
        enforcing."""
        mode = self._settings.mode
        if not hello:
            if mode is TlsMode.ENFORCING:
                raise WireError("a plain peer where tls.server.mode is enforcing")
            return None
        if mode is TlsMode.DISABLED:
            raise WireError("a TLS peer where tls.server.mode is disabled")
        return self._context.get()

    def _make_context(self) -> ssl.SSLContext:
        """Make the context of the settings, with the protocols of ALPN. Raises TlsError."""
        context = server_context(self._settings)
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context

    async def _look_at_files(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._context.reload_if_changed()
            except Exception:
                logger.exception("the TLS files cannot be checked now")

"""The broker's gRPC port: which services it has, and when it serves.

Owns the server and the names of the services. It must never know a message. Made, started and
stopped by node.py, which loads it only where there is such a port.
"""

import logging

from turbopump.broker.context import BrokerContext
from turbopump.net.grpc.health import Health
from turbopump.net.grpc.server import GrpcServer, why_no_grpc
from turbopump.net.wire.hosts import join

logger = logging.getLogger(__name__)


class GrpcFront:
    """One for a broker that serves gRPC. Loop thread only."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._health = Health((), lambda: broker.role.is_known and not broker.shutting_down)
        broker.role.on_change.append(self._health.changed)
        self._server = GrpcServer(self._health.methods)
        self.address = ""
        """`host:port` for clients; empty where gRPC is off."""

    async def start(self, host: str, port: int) -> None:
        """Listen (0: on a free port). Where the library is missing, gRPC is off, which one line of
        the log says. Raises OSError if the port is in use."""
        reason = why_no_grpc()
        if reason is not None:
            logger.warning("%s", reason)
            return
        port = await self._server.start(host, port)
        self.address = join(self._broker.config.broker_ip1, port)
        logger.info("gRPC at %s", self.address)

    async def stop(self) -> None:
        """End what is under way and close the port."""
        self._health.changed()
        await self._server.stop()

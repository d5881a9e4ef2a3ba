"""The gRPC server of a broker and its services.

Owns the server and the names of the services. It must never know a message. node.py loads it only
if gRPC is enabled.

Tests: tests/integration/grpc/test_grpc_server.py
"""

import logging
from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.grpc.backend import BrokerRequestBackend
from turbopump.broker.grpc.simple_calls import SimpleCalls
from turbopump.net.grpc.health import Health
from turbopump.net.grpc.messages import SERVICE, service_files
from turbopump.net.grpc.reflection import HEALTH, Reflection
from turbopump.net.grpc.server import GrpcServer, why_no_grpc
from turbopump.net.grpc.status import HEADERS, GrpcCode, encode_trailers
from turbopump.net.messaging.messaging import Messaging
from turbopump.net.messaging.routes import endpoints_at
from turbopump.net.wire.hosts import join
from turbopump.pyx.grpc_lane import GrpcLane
from turbopump.pyx.io_threads import IoThreads

logger = logging.getLogger(__name__)


class GrpcFront:
    """The gRPC server of a broker with its services: messaging, health, reflection. Loop thread
    only; call `begin_accepting`, then perhaps `start`, at last `stop`."""

    def __init__(
        self, broker: BrokerContext, backend: BrokerRequestBackend, threads: IoThreads | None
    ) -> None:
        """`threads` read and write the connections of a separate port; None: the loop does."""
        self._broker = broker
        self._health = Health((SERVICE,), lambda: broker.role.is_known and not broker.shutting_down)
        broker.role.on_change.append(self._health.send_changes)
        self._messaging = Messaging(backend, lambda _: endpoints_at(self.address))
        methods = self._health.methods | self._messaging.methods
        names = [path.rpartition("/")[2] for path in self._messaging.methods]
        reflection = Reflection((SERVICE, HEALTH), partial(service_files, names))
        plain = SimpleCalls(broker, self._messaging)
        lane = GrpcLane(
            plain.find_native_lane, plain.may_ack, HEADERS, encode_trailers(GrpcCode.OK, "")
        )
        self.server = GrpcServer(
            methods | reflection.methods, tls=broker.config.tls, lane=lane, threads=threads
        )
        """The server to which the broker's own port passes gRPC connections."""
        self.address = ""
        """Address `host:port` for clients, by brokerIP1; empty before `start`; the owner may set
        another."""

    def begin_accepting(self) -> bool:
        """Begin to accept gRPC at the broker's own port, and return True. False if the gRPC library
        is missing: a warning is logged, and gRPC stays off."""
        reason = why_no_grpc()
        if reason is not None:
            logger.warning("%s", reason)
            return False
        self.server.begin()
        self._messaging.start()
        return True

    async def start(self, host: str, port: int) -> None:
        """Listen at a separate port, too (0: a free port), and set `address`. Raises OSError if the
        port is in use, TlsError for unusable certificate files."""
        port = await self.server.start(host, port)
        self.address = join(self._broker.config.broker_ip1, port)
        logger.info("gRPC at %s", self.address)

    async def stop(self) -> None:
        """Refuse new calls, give calls in progress the server's grace time, then end them and close
        the port."""
        self._messaging.stop()
        self._health.send_changes()
        await self.server.stop()

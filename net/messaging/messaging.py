"""`apache.rocketmq.v2.MessagingService`: the table of its methods.

Owns that table and the objects that serve the methods. It must never serve a call itself.

Tests: tests/unit/net/messaging/test_clients.py, tests/integration/grpc/test_messaging.py
"""

from collections.abc import Callable
from typing import Any, Final

from turbopump.net.grpc.call import Method
from turbopump.net.grpc.messages import SERVICE
from turbopump.net.messaging.backend import TICK_MS, RequestBackend
from turbopump.net.messaging.clients import GrpcClients
from turbopump.net.messaging.receipts import ReceiptMethods, ReceiptSettling
from turbopump.net.messaging.receiving import Receiving
from turbopump.net.messaging.renewals import Renewals
from turbopump.net.messaging.routes import Routes
from turbopump.net.messaging.rpc import unary_rpc
from turbopump.net.messaging.sending import Sending, check_weight
from turbopump.net.messaging.telemetry import Telemetry
from turbopump.net.transport.peer import Timer

PATH: Final = f"/{SERVICE}/"
"""The begin of the paths of all methods."""


class Messaging:
    """The service of a server. Loop thread only.

    `endpoints` takes a QueryRouteRequest or QueryAssignmentRequest and returns the addresses at
    which clients find the server, as the message Endpoints.
    """

    def __init__(self, backend: RequestBackend, endpoints: Callable[[Any], Any]) -> None:
        self._backend = backend
        self.clients = GrpcClients(backend)
        """The registered clients."""
        routes = Routes(backend, endpoints)
        settling = ReceiptSettling(backend)
        self.renewals = Renewals(backend, settling)
        """The receipts that are renewed."""
        self.clients.on_dropped = self.renewals.client_dropped
        receipts = ReceiptMethods(
            backend, settling, self.clients.peer_of_caller, self.renewals.newest_receipt
        )
        receiving = Receiving(backend, self.clients, settling, self.renewals)
        sending = Sending(backend, self.clients.peer_of_caller, self.clients.add_producer_topic)
        self.methods: dict[str, Method] = {
            f"{PATH}QueryRoute": unary_rpc("QueryRoute", routes.serve_route),
            f"{PATH}QueryAssignment": unary_rpc("QueryAssignment", routes.serve_assignment),
            f"{PATH}SendMessage": unary_rpc("SendMessage", sending.send, check_weight),
            f"{PATH}EndTransaction": unary_rpc("EndTransaction", sending.serve_end_transaction),
            f"{PATH}RecallMessage": unary_rpc("RecallMessage", sending.serve_recall),
            f"{PATH}ReceiveMessage": receiving.receive_method,
            f"{PATH}AckMessage": unary_rpc("AckMessage", receipts.ack),
            f"{PATH}ChangeInvisibleDuration": unary_rpc(
                "ChangeInvisibleDuration", receipts.serve_change_invisible
            ),
            f"{PATH}ForwardMessageToDeadLetterQueue": unary_rpc(
                "ForwardMessageToDeadLetterQueue", receipts.serve_forward_to_dlq
            ),
            f"{PATH}Heartbeat": unary_rpc("Heartbeat", self.clients.serve_heartbeat),
            f"{PATH}NotifyClientTermination": unary_rpc(
                "NotifyClientTermination", self.clients.serve_termination
            ),
            f"{PATH}Telemetry": Telemetry(backend, self.clients).begin_stream,
        }
        """The methods of the service, by path."""
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to check clients and receipts every TICK_MS, the first time after TICK_MS, until
        `stop`."""
        self._timer = self._backend.call_later(TICK_MS, self._tick)

    def stop(self) -> None:
        """Stop the periodic checks; no-op without checks. Clients stay registered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Check clients and receipts now, and again after TICK_MS."""
        self.start()
        self.clients.tick()
        self.renewals.tick()

"""`apache.rocketmq.v2.MessagingService`: which method is served by what.

Owns the table of methods and the parts behind it. It must never serve a call itself. Made by
front.py.
"""

from collections.abc import Callable
from typing import Final

from turbopump.broker.grpc.clients import GrpcClients
from turbopump.broker.grpc.ground import TICK_MS, GrpcGround
from turbopump.broker.grpc.handles import Handles, ReceiptSettling
from turbopump.broker.grpc.receiving import Receiving
from turbopump.broker.grpc.renewals import Renewals
from turbopump.broker.grpc.routes import Routes
from turbopump.broker.grpc.rpc import method
from turbopump.broker.grpc.sending import Sending, check_weight
from turbopump.broker.grpc.telemetry import Telemetry
from turbopump.net.grpc.call import Method
from turbopump.net.grpc.messages import SERVICE
from turbopump.net.transport.peer import Timer

PATH: Final = f"/{SERVICE}/"


class Messaging:
    """The service of one broker; `address` is where its gRPC port is."""

    def __init__(self, ground: GrpcGround, address: Callable[[], str]) -> None:
        self._ground = ground
        self.clients = GrpcClients(ground)
        routes = Routes(ground, address)
        settling = ReceiptSettling(ground)
        self.renewals = Renewals(ground, settling)
        self.clients.on_gone = self.renewals.gone
        handles = Handles(ground, settling, self.clients.peer, self.renewals.newest)
        receiving = Receiving(ground, routes, self.clients, settling, self.renewals)
        sending = Sending(ground, routes, self.clients.peer, self.clients.produces)
        self.methods: dict[str, Method] = {
            f"{PATH}QueryRoute": method("QueryRoute", routes.query),
            f"{PATH}QueryAssignment": method("QueryAssignment", routes.assign),
            f"{PATH}SendMessage": method("SendMessage", sending.send, check_weight),
            f"{PATH}EndTransaction": method("EndTransaction", sending.end),
            f"{PATH}RecallMessage": method("RecallMessage", sending.recall),
            f"{PATH}ReceiveMessage": receiving.method,
            f"{PATH}AckMessage": method("AckMessage", handles.ack),
            f"{PATH}ChangeInvisibleDuration": method("ChangeInvisibleDuration", handles.change),
            f"{PATH}ForwardMessageToDeadLetterQueue": method(
                "ForwardMessageToDeadLetterQueue", handles.forward
            ),
            f"{PATH}Heartbeat": method("Heartbeat", self.clients.heartbeat),
            f"{PATH}NotifyClientTermination": method(
                "NotifyClientTermination", self.clients.terminate
            ),
            f"{PATH}Telemetry": Telemetry(ground, self.clients).begin,
        }
        """By path."""
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to look after clients; `stop` ends it."""
        self._timer = self._ground.call_later(TICK_MS, self._tick)

    def stop(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.start()
        self.clients.tick()
        self.renewals.tick()

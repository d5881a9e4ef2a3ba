"""A client of the service, as a caller of grpcio."""

import queue
import uuid
from typing import Any

import grpc

from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import SERVICE, message_class


class Client:
    """A client id at a gRPC port."""

    def __init__(self, address: str) -> None:
        self.client_id = uuid.uuid4().hex
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None

    @property
    def _metadata(self) -> list[tuple[str, str]]:
        return [("x-mq-client-id", self.client_id), ("x-mq-language", "PYTHON")]

    def ask(self, name: str, timeout_s: float = 10, **fields: Any) -> Any:
        """The answer to a unary call."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            message_class(f"{name}Request").SerializeToString,
            message_class(f"{name}Response").FromString,
        )
        request = message_class(f"{name}Request")(**fields)
        return call(request, metadata=self._metadata, timeout=timeout_s)

    def begin(self, **settings: Any) -> Any:
        """Open the stream of telemetry; the settings that come back."""
        command = message_class("TelemetryCommand")
        call = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry", command.SerializeToString, command.FromString
        )
        self._stream = call(iter(self._said.get, None), metadata=self._metadata)
        self._said.put(command(settings=settings))
        return next(self._stream).settings

    def heard(self) -> Any:
        """The next command of the stream."""
        return next(self._stream)

    def receive(self, topic: str, group: str, **changed: Any) -> list[Any]:
        """Messages of a ReceiveMessage call."""
        call = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            message_class("ReceiveMessageRequest").SerializeToString,
            message_class("ReceiveMessageResponse").FromString,
        )
        asked = {
            "group": {"name": group},
            "message_queue": {"topic": {"name": topic}},
            "batch_size": 32,
            "invisible_duration": {"seconds": 10},
            "long_polling_timeout": {"seconds": 5},
            **changed,
        }
        request = message_class("ReceiveMessageRequest")(**asked)
        responses = [*call(request, metadata=self._metadata, timeout=20)]
        return [one.message for one in responses if one.WhichOneof("kind") == "message"]

    def ack(self, topic: str, group: str, *messages: Any) -> int:
        """Acknowledge messages; the code of the answer."""
        entries = [
            {
                "message_id": one.system_properties.message_id,
                "receipt_handle": one.system_properties.receipt_handle,
            }
            for one in messages
        ]
        named = {"group": {"name": group}, "topic": {"name": topic}}
        return int(self.ask("AckMessage", entries=entries, **named).status.code)

    def send(self, topic: str, body: bytes, **system: Any) -> Any:
        """Send a message; its entry of the answer."""
        system = {"message_id": uuid.uuid4().hex, "message_type": 1, **system}
        one = {"topic": {"name": topic}, "body": body, "system_properties": system}
        response = self.ask("SendMessage", messages=[{**one, "user_properties": {"u": "ü"}}])
        assert response.status.code == Code.OK, response
        return response.entries[0]

    def close(self) -> None:
        self._said.put(None)
        self._channel.close()

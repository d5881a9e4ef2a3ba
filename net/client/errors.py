"""The client's exceptions, one class for each case that a program may handle differently.

Owns the exception classes above the transport's RemotingError. It must never import the shells.

Tests: tests/unit/net/client/test_public_face.py
"""

from turbopump.engine.types import TurbopumpError


class ClientError(TurbopumpError):
    """The request cannot be made, or its object does not exist;
    base of this module's exceptions."""


class InvalidArgument(ClientError):
    """An argument that can never be used: a name, an address, an expression or a message that every
    broker would refuse. No request was sent."""


def check_type(value: object, kinds: type | tuple[type, ...], what: str, wanted: str) -> None:
    """Raise InvalidArgument unless `value` is an instance of `kinds`; `what` and `wanted` name the
    argument and its type in the error: "`what` is `wanted`, not ..."."""
    if not isinstance(value, kinds):
        raise InvalidArgument(f"{what} is {wanted}, not {type(value).__name__}: {value!r:.80}")


class RouteNotFound(ClientError):
    """No name server knows a usable route of the topic, or no address of a broker is known."""


class NoWritableQueue(RouteNotFound):
    """The topic is there, but for the moment no master accepts messages for it."""


class ClientClosed(ClientError):
    """The producer, consumer or admin client is not started, or is closed."""


class BrokerError(ClientError):
    """A broker, name server, controller or gRPC server answered with an error code.

    `code` is RocketMQ's response code (remoting/protocol/ResponseCode), by gRPC the code of a
    Status, `remark` its text ("" without a text), `address` the "host:port" that answered.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {code}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address

"""The endpoint of a proxy in routes: the host to which the client connected.

Owns this rule of RocketMQ's proxy (GrpcConverter, RouteActivity): the host of the request, with the
proxy's own port or the request's. So several proxies can share one host name. It must never handle
a route.

Tests: tests/integration/grpc/test_endpoints.py
"""

from typing import Any, Final

from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.routes import endpoints_at
from turbopump.net.wire.hosts import join

ADDRESSES_MAX: Final = 64
"""Maximum number of addresses in one request."""
_Endpoints: Final = message_class("Endpoints")


class ClientEndpoints:
    """Returns the endpoints for one proxy's responses; `host` is for requests without an
    endpoint. With `echoes_port` a request's own port is returned in place of `port`."""

    def __init__(self, host: str, port: int, *, echoes_port: bool) -> None:
        self._own = join(host, port)
        self._port = port
        self._echoes_port = echoes_port

    def __call__(self, request: Any) -> Any:
        """Build the protobuf message Endpoints for the response to `request`, which has a field
        `endpoints`; more than ADDRESSES_MAX addresses are treated as none."""
        given = request.endpoints
        if not 0 < len(given.addresses) <= ADDRESSES_MAX:
            return endpoints_at(self._own)
        addresses = [
            {"host": one.host, "port": one.port if self._echoes_port else self._port}
            for one in given.addresses
        ]
        return _Endpoints(scheme=given.scheme, addresses=addresses)

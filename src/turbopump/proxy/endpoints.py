"""Where clients find a proxy: where they say they have found it.

Owns that rule of RocketMQ's proxy (GrpcConverter, RouteActivity): the host of the request, with the
proxy's own port or the request's. So any number of proxies can stand behind one name. It must never
know a route. Called by routes, through node.py.
"""

from typing import Any, Final

from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.routes import endpoints_at
from turbopump.net.wire.hosts import join

ADDRESSES_MAX: Final = 64
"""Addresses that one request may name."""
_Endpoints: Final = message_class("Endpoints")


class ToldEndpoints:
    """Answers for one proxy: `host` is for requests that do not say where they go."""

    def __init__(self, host: str, port: int, *, echoes_port: bool) -> None:
        self._own = join(host, port)
        self._port = port
        self._echoes_port = echoes_port

    def __call__(self, request: Any) -> Any:
        """The message Endpoints for a request that has one."""
        given = request.endpoints
        if not 0 < len(given.addresses) <= ADDRESSES_MAX:
            return endpoints_at(self._own)
        addresses = [
            {"host": one.host, "port": one.port if self._echoes_port else self._port}
            for one in given.addresses
        ]
        return _Endpoints(scheme=given.scheme, addresses=addresses)

"""The client that a program hands to several producers and consumers.

Owns the public handle of a ClientInstance. It must never send a request.

Tests: tests/unit/net/client/test_public_face.py
"""

from collections.abc import Sequence

from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.client.options import ClientOptions, addresses_of


class SharedClient:
    """A client of a cluster of name servers, for any number of producers and consumers:

        shared = SharedClient("127.0.0.1:9876")
        async with Producer("orders", client=shared), Consumer("billing", client=shared):
            ...

    They share connections, routes, heartbeats and the id under which brokers list the client. The
    first that starts opens it, and the last that closes closes it. A consumer group has at most one
    consumer in it, and a producer group at most one TransactionProducer; the `start` of a second
    raises ClientError. All users run in the same event loop. Without a shared client each producer
    and consumer makes a client of its own.

    Args:
        namesrv: addresses "host:port", or one text with ";" between them; the first that answers
            is used until it fails, or needs more than a second.
        options: intervals and timeouts.

    Raises InvalidArgument for a malformed address or unusable credentials, and TlsError for TLS
    files that cannot be used.
    """

    def __init__(self, namesrv: str | Sequence[str], options: ClientOptions | None = None) -> None:
        self._instance = ClientInstance(namesrv, options)


def instance_of(
    client: SharedClient | None,
    namesrv: str | Sequence[str] = (),
    options: ClientOptions | None = None,
) -> ClientInstance:
    """The instance inside `client`; if it is None, a new, unstarted instance of `namesrv` and
    `options`. Raises as SharedClient does, and InvalidArgument for `options`, or other name
    servers, together with `client`."""
    if client is None:
        return ClientInstance(namesrv, options)
    check_type(client, SharedClient, "client", "a turbopump.SharedClient")
    if options is not None:
        raise InvalidArgument("a shared client has options of its own: no client_options with it")
    instance = client._instance
    if namesrv and sorted(addresses_of(namesrv)) != sorted(instance.namesrv):
        raise InvalidArgument(f"the shared client has other name servers: {instance.namesrv}")
    return instance


def refuse_with_endpoints(client: SharedClient | None, namesrv: str | Sequence[str]) -> None:
    """Raises InvalidArgument for a shared client or name servers given together with
    `endpoints`."""
    if client is not None:
        raise InvalidArgument("a shared client speaks remoting: no client together with endpoints")
    if namesrv:
        raise InvalidArgument("gRPC needs no name server: no namesrv together with endpoints")

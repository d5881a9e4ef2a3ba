"""gRPC over HTTP/2: the transport, and what every server of it has."""

"""The client by gRPC: producers and consumers of a proxy, or of a broker, without a name server."""

"""gRPC over HTTP/2: the transport, and the services common to all servers (health, reflection)."""

"""The gRPC service of a broker."""

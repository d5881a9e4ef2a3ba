"""A proxy: gRPC for a whole cluster, without a broker in its process."""

"""Tables of a master that its replicas copy."""

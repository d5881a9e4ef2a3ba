"""Messages that a replica, which writes nothing, gives to masters of other groups (RIP-32)."""

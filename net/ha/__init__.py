"""Replication: the frames of both HA protocols and the two machines of each, without a socket."""

"""Replication without a socket: frames and state machines of AutoSwitch HA and default HA."""

"""Configurations of nodes: what all of them have in common. No I/O."""

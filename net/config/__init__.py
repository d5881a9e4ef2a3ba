"""Configurations of nodes: the parts that all kinds of node share. No I/O."""

"""Replication of this broker: the drivers of net/ha's machines over a real log."""

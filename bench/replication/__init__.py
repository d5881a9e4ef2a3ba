"""Replication beside Apache RocketMQ's and beside the least it can cost: `python -m
bench.replication`."""

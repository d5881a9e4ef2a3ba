"""Replication beside Apache RocketMQ's and a bare loop: `python -m bench.replication`."""

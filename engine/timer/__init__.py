"""Timers of a store: RocketMQ's wheel, log and checkpoint for messages that wait for a time."""

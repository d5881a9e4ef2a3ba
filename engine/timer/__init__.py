"""Timers of a store: RocketMQ's wheel, log and checkpoint of messages that wait for a time."""

"""Configuration of a broker: its keys, their file, and RocketMQ's keys that have no effect here."""

"""Turbopump: a high-availability message broker compatible with Apache RocketMQ 5.x."""

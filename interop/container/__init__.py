"""Containers of brokers: Apache RocketMQ's tools with them, and messages that escape from a
replica."""

"""Containers of brokers: Apache RocketMQ's tools at them, and what leaves a replica in one."""

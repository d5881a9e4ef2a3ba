"""The broker: node, topics, groups, offsets, handlers and services."""

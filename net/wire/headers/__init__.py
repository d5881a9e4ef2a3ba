"""Header dataclasses by family; each class is named as RocketMQ's without "Header"."""

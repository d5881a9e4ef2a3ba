"""Allocation of queues to a group's members: the strategies, for brokers and clients alike."""

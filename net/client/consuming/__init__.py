"""Consumers: membership, balance, pulls, delivery, retries and offsets."""

"""Files derived from the log: consume queues, the index, and look-ups in them."""

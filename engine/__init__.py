"""The store: segments, commit log, queues, index, recovery. Knows no network."""

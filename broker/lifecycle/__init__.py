"""The life of a broker process: start, periodic work, replication, reopening and shutdown."""

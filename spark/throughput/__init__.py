"""The throughput job: how much was stored when, how late, and where it stopped."""

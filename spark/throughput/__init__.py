"""The throughput job: traffic over time, latencies, gaps and stalls of stores."""

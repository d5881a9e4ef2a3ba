"""Pop consumption: requests of consumers that the broker hands messages to."""

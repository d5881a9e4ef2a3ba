"""Pop consumption: requests of consumers that let the broker choose the queue of their messages."""

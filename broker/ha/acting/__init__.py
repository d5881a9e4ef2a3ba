"""A replica that acts for its master, and the master's return (RIP-32)."""

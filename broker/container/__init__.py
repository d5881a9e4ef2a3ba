"""Several brokers in one process, each with its own store (RIP-31: BrokerContainer)."""

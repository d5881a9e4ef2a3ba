"""Real clients, tools and brokers of Apache RocketMQ against a running broker group."""

"""Our clients, commands and proxy against brokers of RocketMQ with access control."""

"""The broker for RocketMQ's 5.x clients, which speak gRPC."""

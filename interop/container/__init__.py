"""Apache RocketMQ's tools at containers of brokers."""

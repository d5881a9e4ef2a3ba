"""Programs of RocketMQ's gRPC clients in other languages than Java, each a suite of scenarios."""

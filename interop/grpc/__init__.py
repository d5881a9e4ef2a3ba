"""RocketMQ's gRPC clients: the tests, and the programs of those that are not Java's."""

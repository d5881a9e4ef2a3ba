"""RocketMQ's gRPC clients: the tests, and the programs for the clients that are not Java."""

"""The rebalance job: measures the cost of each change of a group's consumers."""

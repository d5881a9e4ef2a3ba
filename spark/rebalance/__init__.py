"""The rebalance job: what a change of consumers cost."""

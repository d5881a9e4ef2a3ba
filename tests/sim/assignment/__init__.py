"""Groups whose brokers share out the queues: real coordinators, simulated members and networks."""

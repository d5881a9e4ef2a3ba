"""Groups whose brokers assign queues: real coordinators, simulated members and networks."""

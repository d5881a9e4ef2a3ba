"""Who of a group consumes which queues: the strategies, for brokers and clients alike."""

"""Apache RocketMQ and Turbopump in turn, on one machine, one disk, with the same load."""

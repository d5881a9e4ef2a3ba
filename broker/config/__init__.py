"""The keys of a broker, their file, and those of RocketMQ without effect here."""

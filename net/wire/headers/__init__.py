"""Header dataclasses by family; each file names RocketMQ's classes minus "Header"."""

"""Texts that RocketMQ's answers share.

Owns remarks that operators know by heart and search for. It must never decide anything. Called by
the handlers.
"""

SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
"""What a replica answers to sends; clients try another broker."""
NOT_ENOUGH_IN_SYNC = "in-sync replicas not enough"
SHUT_DOWN_OR_FULL = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk"
    " is full, messages are put to the slave, message store has been shut down, etc."
)

"""`apache.rocketmq.v2.MessagingService`, whatever executes it: a broker, or a proxy of many."""

"""`apache.rocketmq.v2.MessagingService`, independent of its
backend: a broker, or a proxy for many."""

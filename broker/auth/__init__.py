"""Users, policies and the decisions about requests (RocketMQ's ACL 2.0)."""

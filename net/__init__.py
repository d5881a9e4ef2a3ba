"""RocketMQ remoting: wire (codec) < transport (uvloop) < client."""

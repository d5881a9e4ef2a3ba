"""What is due goes to other masters while a replica acts (enableRemoteEscape)."""

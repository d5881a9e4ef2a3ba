"""The uvloop shell: server, client connections, TLS, dispatch table."""

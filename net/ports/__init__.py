"""Listening ports: accepted connections, and the HTTP port of metrics."""

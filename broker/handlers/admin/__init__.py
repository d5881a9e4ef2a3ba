"""Handlers of requests that administrators send."""

"""The name server: routes (core), handlers, node."""

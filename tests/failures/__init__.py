"""Exceptions that a node caught and logged, in the tests' own process."""

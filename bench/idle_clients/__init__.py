"""Measures a broker's memory for idle gRPC clients."""

"""The broker's gRPC port."""

"""What gRPC clients that only wait cost a broker."""

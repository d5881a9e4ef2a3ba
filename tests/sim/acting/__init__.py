"""Groups of default HA whose replicas act for their master (RIP-32), under simulation."""

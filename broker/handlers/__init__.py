"""Request handlers, a file per family, registered in one table."""

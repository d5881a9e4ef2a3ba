"""Request handlers, one file per family of request codes, all registered in one table."""

"""Read-only views of a store that another process may be writing, for tools and for Spark."""

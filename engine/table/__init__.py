"""Read-only views of a store that others may be writing, for tools and for Spark."""

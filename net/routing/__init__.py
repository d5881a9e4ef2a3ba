"""Routes of topics: queries to name servers, and the cache of their answers."""

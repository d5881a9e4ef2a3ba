"""Analytics over the raw log. Imports engine only; filled by the Spark work."""

"""The data source `turbopump`: a store as a table for Spark, or as a stream."""

"""The throughput job without Spark: for small stores, in one process, where Java is missing.

Owns the computation of the Spark job's figures from the same cells. It must never need pyspark.
"""

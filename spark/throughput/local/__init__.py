"""The throughput job without Spark: for small stores, in one process, where there is no Java.

Owns the same figures as the Spark job tells, from the same cells. It must never need pyspark.
Called by throughput/job.py with --local.
"""

"""The jobs' command lines: their arguments, and the stores that a path means.

This package needs neither Spark, pyarrow nor numpy, so help is shown without them.
"""

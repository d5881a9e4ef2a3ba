"""What can be asked of the jobs: their arguments, and which stores a path means.

Nothing here needs Spark, pyarrow or numpy: help is shown where none of them is installed.
"""

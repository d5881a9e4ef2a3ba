"""The audit of a chaos run: stores, epoch files and what clients received, one against the other.

`ledger` is what clients received, `replicas` what a store says of itself, `scan` what its log says;
`digests`, `labels`, `claims` hold these against each other; `verdicts` is what comes of it, `job`
runs it with Spark or without. It must never change, lock or create a file of a store.
"""

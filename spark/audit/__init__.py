"""The audit of a chaos run: compare stores, epoch files and ledgers of clients with each other.

`ledger` reads the records that clients wrote, `replicas` the small files of a store, `scan` its
log; `digests`, `logs` and `claims` compare these; `verdicts` collects the results, and `job` runs
all of it, with Spark or without. The audit must never change, lock or create a file of a store.
"""

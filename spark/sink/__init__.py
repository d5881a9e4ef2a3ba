"""Sends rows of Spark as messages of a topic: `df.write.format("turbopump")`.

Owns the way from tables to brokers. Modules that only read must never import it; `source` does when
Spark requests a writer.
"""

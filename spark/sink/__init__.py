"""Rows of Spark as messages of a topic: `df.write.format("turbopump")`.

Owns the way back, from tables to brokers. It must never be imported by what only reads. Called by
`source` when Spark asks for a writer.
"""

"""Habits of prose that make a text hard to read once, counted for each folder of source.

`densities.json` keeps the highest density that each folder may have; it only falls. The command
`python -m tests.prose` prints the densities of today, and `--lower` writes the lower ones.
"""

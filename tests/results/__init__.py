"""Results of single runs, kept as JSON lines in docs/results, and the command that prints them.

docs/TESTING.md and docs/PERFORMANCE.md are reports of today; a run that was measured once, at a
named commit, is a line here.
"""

"""Export of topics to files that other tools read."""

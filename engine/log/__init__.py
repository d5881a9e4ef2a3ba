"""The commit log: its records, its damage, its group commit and its epochs."""

"""A store from its opening to its end: recovery, checkpoints, retention, truncation."""

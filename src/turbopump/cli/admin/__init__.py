"""`turbopump admin`: its commands, by subject."""

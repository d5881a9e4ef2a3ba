"""`turbopump admin`: its commands, by what they are about."""

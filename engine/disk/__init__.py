"""Files and their syncs: segments, checkpoints, tables, and the thread of the disk."""

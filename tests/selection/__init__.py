"""Which tests a run plays, and in which order and on which worker."""

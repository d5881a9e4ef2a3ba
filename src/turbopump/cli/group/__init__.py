"""`turbopump up --processes`: each node of a group runs in its own process."""

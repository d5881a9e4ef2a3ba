"""`turbopump up --processes`: each node of a group is a process of its own."""

"""`turbopump bench`: loads, their plan, and their reports."""

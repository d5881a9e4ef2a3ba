"""`turbopump bench`: loads, their plan, and what they report."""

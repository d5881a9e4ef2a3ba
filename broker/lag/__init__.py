"""How far consumer groups are behind."""

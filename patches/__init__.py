"""The fixes: one folder each, listed in the `catalogue` of their engine."""

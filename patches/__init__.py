"""The fixes: one folder each, listed in `catalogue`."""

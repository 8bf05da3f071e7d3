"""Builds vLLM's objects; see `construction`."""

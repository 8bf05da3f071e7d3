"""Builds sglang's objects: `construction`."""

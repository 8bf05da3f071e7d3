"""Fixes for sglang."""

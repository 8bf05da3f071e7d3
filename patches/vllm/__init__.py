"""Fixes for vLLM."""

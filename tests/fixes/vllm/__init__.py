"""Tests of fixes for vLLM."""

"""Proofs: run an engine's real code stock and fixed, in fresh interpreters, against a float64 reference."""

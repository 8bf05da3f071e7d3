"""Proofs: run an engine's real code stock and fixed, in processes of their own, against a float64 reference."""

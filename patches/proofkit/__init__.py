"""Engine objects for tests and proofs, built as the engines build them."""

"""What proofs and tests build engine objects with: the engine's own constructors, from real configs, on a CPU."""

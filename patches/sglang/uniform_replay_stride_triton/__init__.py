"""sglang.uniform-replay-stride-triton: draft-extend replay on Triton follows accept lengths."""

from .fix import FIX

__all__ = ["FIX"]

"""vllm.both-empty-merge-triton: merging two empty parts gives NaN, in the Triton kernel."""

from .fix import FIX

__all__ = ["FIX"]

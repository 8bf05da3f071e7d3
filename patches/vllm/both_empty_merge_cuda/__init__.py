"""vllm.both-empty-merge-cuda: merging two empty parts gives NaN, in the CUDA op."""

from .fix import FIX

__all__ = ["FIX"]

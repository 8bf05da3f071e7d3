"""vllm.empty-context-chunks: undefined rows of empty context chunks are merged."""

from .fix import FIX

__all__ = ["FIX"]

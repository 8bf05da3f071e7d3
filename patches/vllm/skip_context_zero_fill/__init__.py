"""vllm.skip-context-zero-fill: the output of every context chunk is zero-filled."""

from .fix import FIX

__all__ = ["FIX"]

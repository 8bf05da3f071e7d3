"""vllm.fa3-dcp-graph: FlashAttention under decode context parallelism with full CUDA graphs."""

from .fix import FIX

__all__ = ["FIX"]

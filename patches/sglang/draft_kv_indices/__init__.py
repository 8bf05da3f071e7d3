"""sglang.draft-kv-indices: KV indices of EAGLE's branches overflow their CUDA-graph buffer."""

from .fix import FIX

__all__ = ["FIX"]

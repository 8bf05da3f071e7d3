"""vllm.kv-scale-float: scales of a calibrated FP8 KV cache that some backends read as 1."""

from .fix import FIX

__all__ = ["FIX"]

"""sglang.fa3-swa-topk: verification of trees on FlashAttention 3 reads window layers' keys from slots of the full pool."""

from .fix import FIX

__all__ = ["FIX"]
